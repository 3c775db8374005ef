package api

import (
	"github.com/notifyq/notifyq"
)

// jobBody is a job as it is sent. The payload and the idempotency key are not part of it.
type jobBody struct {
	_              struct{}  `additionalProperties:"true"`
	ID             string    `json:"id" format:"uuid" doc:"Also the delivery key of every attempt"`
	Status         string    `json:"status" enum:"PENDING,PROCESSING,SENT,FAILED,DEAD_LETTERED,CANCELLED"`
	Tenant         string    `json:"tenant" doc:"Empty for a job of no tenant"`
	Recipient      string    `json:"recipient" doc:"Empty once it was erased"`
	Channel        string    `json:"channel" example:"EMAIL"`
	Priority       string    `json:"priority" enum:"LOW,NORMAL,HIGH"`
	ScheduledAt    timestamp `json:"scheduledAt" doc:"The earliest time of delivery"`
	NextAttemptAt  timestamp `json:"nextAttemptAt" nullable:"true" doc:"Of a live job"`
	ExpiresAt      timestamp `json:"expiresAt" nullable:"true"`
	AttemptCount   int       `json:"attemptCount" minimum:"0" doc:"Attempts since the last retry by hand"`
	MaxAttempts    int       `json:"maxAttempts" minimum:"1"`
	LastError      *string   `json:"lastError" doc:"Of the last attempt that failed, or was refunded for a misconfigured provider"`
	Reason         *string   `json:"reason" doc:"Why it ended as it did, or what an operator gave"`
	ProviderID     *string   `json:"providerId" doc:"What the provider calls it"`
	SentAt         timestamp `json:"sentAt" nullable:"true"`
	FailedAt       timestamp `json:"failedAt" nullable:"true"`
	DeadLetteredAt timestamp `json:"deadLetteredAt" nullable:"true"`
	CancelledAt    timestamp `json:"cancelledAt" nullable:"true"`
	RedriveCount   int       `json:"redriveCount" minimum:"0" doc:"How often it was retried by hand"`
	LastRedrivenAt timestamp `json:"lastRedrivenAt" nullable:"true"`
	CreatedAt      timestamp `json:"createdAt"`
	UpdatedAt      timestamp `json:"updatedAt"`
}

func newJobBody(j *notifyq.Job) jobBody {
	return jobBody{
		ID: j.ID.String(), Status: string(j.Status), Tenant: j.Tenant, Recipient: j.Recipient, Channel: string(j.Channel),
		Priority: j.Priority.String(), ScheduledAt: timestamp(j.ScheduledAt), NextAttemptAt: timestamp(j.NextAttemptAt),
		ExpiresAt: timestamp(j.ExpiresAt), AttemptCount: j.AttemptCount, MaxAttempts: j.MaxAttempts,
		LastError: orNull(j.LastError), Reason: orNull(j.Reason), ProviderID: orNull(j.ProviderID),
		SentAt: timestamp(j.SentAt), FailedAt: timestamp(j.FailedAt), DeadLetteredAt: timestamp(j.DeadLetteredAt),
		CancelledAt: timestamp(j.CancelledAt), RedriveCount: j.RedriveCount, LastRedrivenAt: timestamp(j.LastRedrivenAt),
		CreatedAt: timestamp(j.CreatedAt), UpdatedAt: timestamp(j.UpdatedAt),
	}
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// attemptBody is an attempt as it is sent.
type attemptBody struct {
	_            struct{}  `additionalProperties:"true"`
	RedriveCount int       `json:"redriveCount" minimum:"0" doc:"0 before the first retry by hand"`
	Number       int       `json:"number" minimum:"1" doc:"1 is the first since the last retry by hand"`
	StartedAt    timestamp `json:"startedAt" nullable:"true" doc:"Not recorded of the attempt that was sent"`
	EndedAt      timestamp `json:"endedAt" nullable:"true"`
	Class        string    `json:"class" enum:"sent,transient,permanent,ambiguous,timeout,panic,lease_expired"`
	Error        *string   `json:"error"`
	Worker       *string   `json:"worker"`
}

func newAttemptBody(at *notifyq.Attempt) attemptBody {
	return attemptBody{
		RedriveCount: at.RedriveCount, Number: at.Number, StartedAt: timestamp(at.StartedAt), EndedAt: timestamp(at.EndedAt),
		Class: at.Class, Error: orNull(at.Error), Worker: orNull(at.Worker),
	}
}

// receiverBody is a receiver of events as it is sent.
type receiverBody struct {
	_            struct{}  `additionalProperties:"true"`
	Name         string    `json:"name" example:"default"`
	Failures     int64     `json:"failures" minimum:"0" doc:"Since its last success"`
	FailingSince timestamp `json:"failingSince" nullable:"true"`
	DisabledAt   timestamp `json:"disabledAt" nullable:"true"`
	Reason       *string   `json:"reason" doc:"Why it is disabled: gone or failing"`
}

func newReceiverBody(s *notifyq.EndpointStatus) receiverBody {
	return receiverBody{
		Name: s.Name, Failures: s.Failures, FailingSince: timestamp(s.FailingSince), DisabledAt: timestamp(s.DisabledAt),
		Reason: orNull(s.Reason),
	}
}
