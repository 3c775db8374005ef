package notifyq

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/notifyq/notifyq/internal/schema"
)

// Limits of a notification. They hold in the library, whatever door a notification comes through; the first that is
// broken comes back as an *InvalidError, and nothing is stored.
const (
	MaxIdempotencyKeyBytes = 255
	MaxRecipientBytes      = 320 // RFC 5321: 64 for the local part, 255 for the domain, and the @
	MaxPayloadBytes        = 64 << 10
	MaxPayloadDepth        = 64 // the payload's root is 1
	MaxChannelBytes        = 64
	MaxTenantBytes         = 64
	MaxAttemptsLimit       = 1000
	MaxBatch               = 10_000   // notifications in one ScheduleMany
	MaxBatchPayloadBytes   = 64 << 20 // of all payloads in one ScheduleMany together
	Horizon                = 365 * 24 * time.Hour
	DefaultMaxAttempts     = 4
	DefaultSchema          = "notifyq"
)

// Channel names a way of delivery and chooses the provider. Channels are an open set: any name of up to 64 letters,
// digits, '_', '-' and '.' that starts with a letter.
type Channel string

// The channels most services have.
const (
	ChannelEmail Channel = "EMAIL"
	ChannelSMS   Channel = "SMS"
	ChannelPush  Channel = "PUSH"
)

// Priority orders jobs that are due: a higher one is always claimed first, unless a worker sets LowPriorityShare.
type Priority int

// The three priorities. The zero Priority of a Notification means PriorityNormal.
const (
	PriorityLow    Priority = 1
	PriorityNormal Priority = 2
	PriorityHigh   Priority = 3
)

// String is the word of the view: LOW, NORMAL or HIGH.
func (p Priority) String() string {
	switch p {
	case PriorityLow:
		return "LOW"
	case PriorityNormal:
		return "NORMAL"
	case PriorityHigh:
		return "HIGH"
	default:
		return fmt.Sprintf("Priority(%d)", int(p))
	}
}

// AmbiguousPolicy says what becomes of a job whose provider may or may not have accepted it: the request was written
// and no answer came, or the worker died in the call.
type AmbiguousPolicy string

const (
	// AmbiguousRetry tries again with the same delivery key. A provider that honours keys then delivers once.
	AmbiguousRetry AmbiguousPolicy = "retry"
	// AmbiguousPark dead-letters the job with reason "ambiguous" and leaves the decision to a person: for what must
	// rather be missed than sent twice.
	AmbiguousPark AmbiguousPolicy = "park"
)

// Notification is what a caller asks for.
type Notification struct {
	// IdempotencyKey names the request, 1 to 255 bytes, not blank, compared byte by byte within the tenant. Scheduling
	// the same request under the same key again returns the first job; another request under it is ErrKeyReused.
	// A request that leaves MaxAttempts or OnAmbiguous out does not differ by them from the first.
	IdempotencyKey string
	// Recipient is handed to the provider as given, 1 to 320 bytes without control characters, and is what rate limits
	// count unless the client has a RecipientKey function.
	Recipient string
	// Channel chooses the provider. A channel that no worker serves is accepted and waits.
	Channel Channel
	// Payload is any JSON value up to 64 KiB and 64 levels, handed to the provider as given, number literals included.
	Payload json.RawMessage
	// Priority is PriorityNormal if zero.
	Priority Priority
	// SendAt is the earliest time of delivery; a time in the past, or none, means now. Not together with Delay.
	SendAt time.Time
	// Delay is the same relative to the database's clock.
	Delay time.Duration
	// ExpiresAt is when delivering no longer makes sense: a job still waiting then ends as FAILED with reason
	// "expired". It must be after the due time. Zero means never.
	ExpiresAt time.Time
	// Tenant separates customers of one service. A client made by ForTenant fills it in.
	Tenant string
	// MaxAttempts is how many attempts may be started before the job is dead-lettered, 1 to 1,000. Zero means the
	// client's MaxAttempts.
	MaxAttempts int
	// OnAmbiguous is the client's policy if empty.
	OnAmbiguous AmbiguousPolicy
}

// Reasons of an outcome that the status alone does not tell.
const (
	ReasonExpired      = "expired"       // FAILED: ExpiresAt passed while the job waited
	ReasonRefused      = "refused"       // FAILED: the provider said no
	ReasonExhausted    = "exhausted"     // DEAD_LETTERED: the last attempt failed
	ReasonLeaseExpired = "lease_expired" // DEAD_LETTERED: the last attempts' workers never reported
	ReasonAmbiguous    = "ambiguous"     // DEAD_LETTERED: the outcome is unknown and the policy is to park
	ReasonErased       = "erased"        // CANCELLED: by EraseRecipient
)

// Job is the state of a notification, as the view notification_jobs shows it. The payload is not part of it. All times
// are the database's, in UTC; a zero time is one that does not apply.
type Job struct {
	ID             uuid.UUID // also the delivery key of every attempt
	Status         Status
	Tenant         string
	IdempotencyKey string
	Recipient      string
	Channel        Channel
	Priority       Priority
	ScheduledAt    time.Time
	NextAttemptAt  time.Time // of a live job
	ExpiresAt      time.Time
	AttemptCount   int // attempts started and not refunded, in this redrive generation
	MaxAttempts    int
	LastError      string // of the last attempt that failed, or was refunded for a misconfigured provider
	Reason         string // one of the Reason constants, or what an operator gave
	ProviderID     string // what the provider called it
	LockedBy       string // the worker that holds it, for people
	LeasedUntil    time.Time
	SentAt         time.Time
	FailedAt       time.Time
	DeadLetteredAt time.Time
	CancelledAt    time.Time
	ErasedAt       time.Time
	RedriveCount   int
	LastRedrivenAt time.Time
	// ReconciliationGranted tells that recovery gave one attempt more, because the last one's outcome was unknown.
	ReconciliationGranted bool
	CreatedAt             time.Time
	UpdatedAt             time.Time
}

// Attempt is one delivery that was tried.
type Attempt struct {
	RedriveCount int // the generation: 0 before the first redrive
	Number       int // 1 is the first of its generation
	StartedAt    time.Time
	EndedAt      time.Time
	Class        string // sent, transient, permanent, ambiguous, timeout, panic or lease_expired
	Error        string // cleaned and cut at 2 KB
	Worker       string
}

// Scheduled is the answer to one notification.
type Scheduled struct {
	ID uuid.UUID
	// Replayed tells that the same request had been scheduled before; Job is then that job as it is now.
	Replayed bool
	Job      Job
	// Err is set by ScheduleMany for an item that was not stored: an *InvalidError or ErrKeyReused.
	Err error
}

// Operation says who asked for a change and why. It is kept in the table operations. Neither may hold control
// characters; each is at most 255 bytes.
type Operation struct {
	Actor  string
	Reason string
}

// What a caller may have to tell apart. Each is asked for with errors.Is.
var (
	// ErrInvalid is any input that breaks a rule; errors.As with *InvalidError gives the field and the rule.
	ErrInvalid = errors.New("invalid")
	// ErrKeyReused is an idempotency key that belongs to another request. Nothing was stored.
	ErrKeyReused = errors.New("idempotency key was used for another request")
	// ErrNotFound is an id, key or name that does not exist, or belongs to another tenant.
	ErrNotFound = errors.New("not found")
	// ErrNotCancellable is a job that is no longer PENDING. The job as it is comes with it.
	ErrNotCancellable = errors.New("only a pending notification can be cancelled")
	// ErrNotRedrivable is a job that is neither FAILED nor DEAD_LETTERED, has expired, or was erased. The job as it is
	// comes with it.
	ErrNotRedrivable = errors.New("only a failed or dead-lettered notification that has neither expired nor been erased can be redriven")
	// ErrNotParked is an event that is published, or still to be.
	ErrNotParked = errors.New("only a parked event can be redriven")
	// ErrSchema is a database without the schema, or with an older version than this library needs.
	ErrSchema = schema.ErrUnfit
	// ErrLeaseLost is the cause (context.Cause) of the end of a delivery's context when the worker has stopped waiting
	// for it and leaves its job to another.
	ErrLeaseLost = errors.New("the claim is given up")
)

// InvalidError names the field that broke a rule, and the rule. It never holds the value: values are personal.
type InvalidError struct {
	Field string
	Rule  string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("notifyq: invalid %s: %s", e.Field, e.Rule)
}

// Is makes errors.Is(err, ErrInvalid) hold.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

func invalid(field, rule string) error { return &InvalidError{Field: field, Rule: rule} }
