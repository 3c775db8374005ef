package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notifyq/notifyq"
)

// shop is the service: it places orders and has mails sent about them.
type shop struct {
	db     *database
	client *notifyq.Client
	show   *screen
	jobs   map[string]uuid.UUID // by idempotency key
}

func openShop(db *database, show *screen) (*shop, error) {
	client, err := notifyq.NewClient(db.pool, notifyq.ClientConfig{Schema: db.schema, Logger: show.logger()})
	return &shop{db: db, client: client, show: show, jobs: make(map[string]uuid.UUID)}, err
}

// mail is what the shop wants to say. Its key makes asking twice harmless.
type mail struct {
	key, to, subject string
	priority         notifyq.Priority
	delay            time.Duration
	attempts         int
}

func (m mail) notification() notifyq.Notification {
	payload, _ := json.Marshal(map[string]string{"subject": m.subject, "text": m.subject + ".\n\nThank you for your order!\n"})
	return notifyq.Notification{
		IdempotencyKey: m.key, Recipient: m.to, Channel: notifyq.ChannelEmail, Payload: payload,
		Priority: m.priority, Delay: m.delay, MaxAttempts: m.attempts,
	}
}

var errChangedMind = errors.New("the customer changed their mind")

// placeOrder writes the order and its mail in one transaction: both exist, or neither.
func (s *shop) placeOrder(ctx context.Context, id int, m mail, then error) error {
	var scheduled notifyq.Scheduled
	err := pgx.BeginFunc(ctx, s.db.pool, func(tx pgx.Tx) (err error) {
		if _, err = tx.Exec(ctx, "insert into "+s.db.shop+".orders (id, customer) values ($1, $2)", id, m.to); err != nil {
			return err
		}
		if scheduled, err = s.client.ScheduleTx(ctx, tx, m.notification()); err != nil {
			return err
		}
		return then
	})
	if err == nil {
		s.remember(m, scheduled)
	}
	return err
}

// send schedules a mail that belongs to no order.
func (s *shop) send(ctx context.Context, m mail) error {
	scheduled, err := s.client.Schedule(ctx, m.notification())
	if err == nil {
		s.remember(m, scheduled)
	}
	return err
}

func (s *shop) remember(m mail, scheduled notifyq.Scheduled) {
	s.jobs[m.key] = scheduled.ID
	s.show.name(scheduled.ID, m.key)
	note := ""
	switch {
	case scheduled.Replayed:
		note = "  (asked for before: the same job, no second mail)"
	case m.delay > 0:
		note = fmt.Sprintf("  (due in %v)", m.delay)
	case m.priority == notifyq.PriorityHigh:
		note = "  (HIGH: overtakes what waits)"
	case m.priority == notifyq.PriorityLow:
		note = "  (LOW)"
	}
	s.show.line("scheduled", m.key, note)
}

// placeOrders schedules everything before the worker runs, so that it all waits together.
func (s *shop) placeOrders(ctx context.Context) error {
	s.show.title("The shop places orders, each in a transaction with its mail")
	order := func(id int, to string) mail {
		return mail{key: fmt.Sprintf("order-%d", id), to: to, subject: fmt.Sprintf("Order %d is confirmed", id)}
	}
	if err := s.placeOrder(ctx, 1001, order(1001, "ada@example.test"), nil); err != nil {
		return err
	}
	if err := s.placeOrder(ctx, 1002, order(1002, "ben@example.test"), errChangedMind); !errors.Is(err, errChangedMind) {
		return fmt.Errorf("the order was to be rolled back: %w", err)
	}
	s.show.line("rolled back", "order-1002", "  (its mail never existed)")
	if err := s.send(ctx, order(1001, "ada@example.test")); err != nil { // a client that retries
		return err
	}
	_, err := s.client.Schedule(ctx, mail{key: "order-1001", to: "eve@example.test", subject: "Other"}.notification())
	if !errors.Is(err, notifyq.ErrKeyReused) {
		return fmt.Errorf("another mail under a used key was to be refused: %w", err)
	}
	s.show.line("refused", "order-1001", "  (another request under a used key)")

	mails := []mail{
		{key: "newsletter-1", to: "ada@example.test", subject: "News", priority: notifyq.PriorityLow},
		{key: "newsletter-2", to: "ben@example.test", subject: "News", priority: notifyq.PriorityLow},
		{key: "reminder", to: "ada@example.test", subject: "Rate your order", delay: 2 * time.Second},
		{key: "flaky", to: "flaky@example.test", subject: "Your parcel is on its way"},
		{key: "nobody", to: "nobody@example.test", subject: "Your parcel is on its way"},
		{key: "outage", to: "outage@example.test", subject: "Your invoice", attempts: 3},
		{key: "withdrawn", to: "cy@example.test", subject: "Come back", delay: time.Hour},
	}
	for i := range 5 {
		mails = append(mails, mail{key: fmt.Sprintf("alert-%d", i+1), to: "busy@example.test", subject: "Price alert"})
	}
	mails = append(mails, mail{key: "password-reset", to: "dan@example.test", subject: "Reset your password", priority: notifyq.PriorityHigh})
	for _, m := range mails {
		if err := s.send(ctx, m); err != nil {
			return err
		}
	}
	job, err := s.client.Cancel(ctx, s.jobs["withdrawn"], notifyq.Operation{Actor: "quickstart", Reason: "campaign ended"})
	if err == nil && job.Status != notifyq.StatusCancelled {
		err = fmt.Errorf("withdrawn is %s", job.Status)
	}
	return err
}

// operate waits for the outage to use up its attempts, repairs the mail server and redrives, and waits for the rest.
func (s *shop) operate(ctx context.Context, mails *mailing) error {
	if err := s.await(ctx, s.jobs["outage"]); err != nil {
		return err
	}
	mails.repair()
	job, err := s.client.Get(ctx, s.jobs["outage"])
	if err != nil {
		return err
	}
	if job.Status == notifyq.StatusDeadLettered {
		op := notifyq.Operation{Actor: "quickstart", Reason: "the mail server is repaired"}
		if _, err := s.client.Redrive(ctx, job.ID, op); err != nil {
			return err
		}
	}
	for _, id := range s.jobs {
		if err := s.await(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// await polls until a job has ended.
func (s *shop) await(ctx context.Context, id uuid.UUID) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("job %s did not end within a minute", id))
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		job, err := s.client.Get(ctx, id)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case job.Status.Terminal():
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// check compares how the jobs ended with the story; another mail server than our own may have answered otherwise.
func (s *shop) check(ctx context.Context, mails *mailing) error {
	if !mails.ours() {
		return nil
	}
	want := map[string]notifyq.Status{"nobody": notifyq.StatusFailed, "withdrawn": notifyq.StatusCancelled}
	for key, id := range s.jobs {
		job, err := s.client.Get(ctx, id)
		if err != nil {
			return err
		}
		expected, special := want[key]
		if !special {
			expected = notifyq.StatusSent
		}
		if job.Status != expected {
			return fmt.Errorf("%s ended as %s instead of %s: %s", key, job.Status, expected, job.LastError)
		}
	}
	return nil
}
