package notifyq_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/store"
)

// The model is what the state machine and the fence say of each job; the store is what it is compared with, as a whole,
// after each of any steps in any order.

// modelRow is one job, as modelSQL reads it.
type modelRow struct {
	Status   int16
	Attempts int16
	Max      int16
	Granted  bool
	Redrives int32
	Token    uuid.UUID // the live one
	Reason   string
	Error    string
	Provider string
}

type modelLine struct {
	ID uuid.UUID
	modelRow
}

const modelSQL = `
	select n.id, coalesce(o.status, q.status), coalesce(o.attempt_count, q.attempt_count), coalesce(o.max_attempts, q.max_attempts),
	       coalesce(o.reconciliation_granted, q.reconciliation_granted), coalesce(o.redrive_count, q.redrive_count),
	       coalesce(q.claim_token, '00000000-0000-0000-0000-000000000000'), coalesce(o.reason, ''),
	       coalesce(o.last_error, q.last_error, ''), coalesce(o.provider_id, '')
	  from @notifications n
	  left join @notification_queue q on q.id = n.id
	  left join @notification_outcomes o on o.id = n.id`

// modelJob is one job of the model.
type modelJob struct {
	modelRow
	parked    bool
	asked     int16 // max attempts as asked for
	due       bool
	begun     bool // started_at
	leaseOver bool
	timeOver  bool
	events    int
}

// modelClaim is what some worker believes to hold, rightly or not.
type modelClaim struct {
	id    uuid.UUID
	token uuid.UUID
	last  bool // it was the job's last attempt when it was claimed
}

const leaseGone = "the claim expired before an outcome was recorded"

type model struct {
	b      *workerBundle
	ctx    context.Context
	jobs   map[uuid.UUID]*modelJob
	ids    []uuid.UUID
	claims []modelClaim
	texts  int
}

func TestStoreFollowsTheModelOfStatesAndFences(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	rapid.Check(t, func(r *rapid.T) {
		m := newModel(b, r)
		defer m.clear()
		r.Repeat(map[string]func(*rapid.T){
			"":           m.compare,
			"claim":      m.claim,
			"renew":      m.renew,
			"start":      m.start,
			"leaseEnds":  m.leaseEnds,
			"recover":    m.recover,
			"settle":     m.settle,
			"defer":      m.deferClaim,
			"cancel":     m.cancel,
			"redrive":    m.redrive,
			"timeIsOver": m.timeIsOver,
			"expire":     m.expire,
			"comeDue":    m.comeDue,
		})
	})
}

func newModel(b *workerBundle, r *rapid.T) *model {
	m := &model{b: b, ctx: b.t.Context(), jobs: make(map[uuid.UUID]*modelJob)}
	for range rapid.IntRange(1, 3).Draw(r, "jobs") {
		attempts := rapid.IntRange(1, 2).Draw(r, "attempts")
		park := rapid.Bool().Draw(r, "park")
		id := b.schedule(withAttempts(attempts), expiring, func(n *notifyq.Notification) {
			if park {
				parked(n)
			}
		})
		m.ids = append(m.ids, id)
		m.jobs[id] = &modelJob{modelRow: modelRow{Max: int16(attempts)}, parked: park, asked: int16(attempts), due: true}
	}
	return m
}

func (m *model) clear() {
	for _, table := range []string{"notifications", "notification_queue", "notification_outcomes", "notification_attempts", "outbox_events"} {
		m.b.exec("delete from @" + table)
	}
}

// compare is the check after every step.
func (m *model) compare(r *rapid.T) {
	rows, err := m.b.Pool.Query(m.ctx, m.b.sql(modelSQL))
	require.NoError(r, err)
	lines, err := pgx.CollectRows(rows, pgx.RowToStructByPos[modelLine])
	require.NoError(r, err)
	got := make(map[uuid.UUID]modelRow)
	for _, l := range lines {
		got[l.ID] = l.modelRow
	}
	events := 0
	want := make(map[uuid.UUID]modelRow)
	for id, j := range m.jobs {
		want[id] = j.modelRow
		events += j.events
		require.LessOrEqual(r, j.Attempts, j.Max)
	}
	require.Equal(r, want, got)
	var recorded, broken int
	require.NoError(r, m.b.Pool.QueryRow(m.ctx, m.b.sql(`select (select count(*) from @outbox_events), (select count(*) from @check_invariants())`)).
		Scan(&recorded, &broken))
	require.Equal(r, events, recorded)
	require.Zero(r, broken, "invariants")
}

func (m *model) job(r *rapid.T) (uuid.UUID, *modelJob) {
	id := rapid.SampledFrom(m.ids).Draw(r, "job")
	return id, m.jobs[id]
}

// held draws some of the claims that were ever made, each job at most once.
func (m *model) held(r *rapid.T) []modelClaim {
	if len(m.claims) == 0 {
		r.Skip("nobody has claimed")
	}
	var chosen []modelClaim
	seen := make(map[uuid.UUID]bool)
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(m.claims)-1), 1, 3, rapid.ID).Draw(r, "claims") {
		if c := m.claims[i]; !seen[c.id] {
			seen[c.id] = true
			chosen = append(chosen, c)
		}
	}
	return chosen
}

func (m *model) live(c modelClaim) bool { return m.jobs[c.id].Token == c.token }

func (m *model) liveOf(claims []modelClaim) (ids []uuid.UUID) {
	for _, c := range claims {
		if m.live(c) {
			ids = append(ids, c.id)
		}
	}
	return ids
}

func (j *modelJob) free() { j.Token, j.begun, j.leaseOver = uuid.Nil, false, false }

func (j *modelJob) end(status int16, reason string) {
	j.free()
	j.Status, j.Reason, j.due = status, reason, false
	if status != 5 {
		j.events++
	}
}

func (m *model) claim(r *rapid.T) {
	limit := rapid.IntRange(1, 3).Draw(r, "limit")
	token := uuid.New()
	claimable := 0
	for _, j := range m.jobs {
		if j.Status == 0 && j.due && !j.timeOver && j.Attempts < j.Max {
			claimable++
		}
	}
	got, err := m.b.store.Claim(m.ctx, m.b.Pool, store.Lease{Worker: "w", Token: token, For: time.Minute},
		store.Lane{Channel: "EMAIL", Limit: limit, Probes: []store.Probe{{Priority: 2, Limit: limit}}})
	require.NoError(r, err)
	require.Len(r, got, min(limit, claimable))
	for _, c := range got {
		j := m.jobs[c.ID]
		require.True(r, j.Status == 0 && j.due && !j.timeOver, "it may be claimed")
		j.Status, j.Token = 1, token
		j.Attempts++
		require.Equal(r, j.Attempts, c.AttemptCount)
		m.claims = append(m.claims, modelClaim{id: c.ID, token: token, last: j.Attempts == j.Max})
	}
}

func (m *model) storeClaims(claims []modelClaim) (s store.Claims) {
	for _, c := range claims {
		s.Add(c.id, c.token)
	}
	return s
}

func (m *model) renew(r *rapid.T) {
	claims := m.held(r)
	done, err := m.b.store.Renew(m.ctx, m.b.Pool, m.storeClaims(claims), time.Minute)
	require.NoError(r, err)
	require.ElementsMatch(r, m.liveOf(claims), done.IDs)
	for _, id := range done.IDs {
		m.jobs[id].leaseOver = false
	}
}

func (m *model) start(r *rapid.T) {
	claims := m.held(r)
	done, err := m.b.store.Start(m.ctx, m.b.Pool, m.storeClaims(claims), time.Minute)
	require.NoError(r, err)
	require.ElementsMatch(r, m.liveOf(claims), done.IDs)
	for _, id := range done.IDs {
		m.jobs[id].leaseOver, m.jobs[id].begun = false, true
	}
}

func (m *model) leaseEnds(r *rapid.T) {
	id, j := m.job(r)
	if j.Status != 1 {
		r.Skip("not claimed")
	}
	m.b.expireLeases(id)
	j.leaseOver = true
}

func (m *model) recover(r *rapid.T) {
	var requeued []uuid.UUID
	var dead []store.DeadLetter
	for id, j := range m.jobs {
		switch {
		case j.Status != 1 || !j.leaseOver:
		case j.parked && j.begun:
			j.end(4, notifyq.ReasonAmbiguous)
			j.Error = leaseGone
			dead = append(dead, store.DeadLetter{ID: id, Attempt: j.Attempts, Reason: j.Reason})
		case j.Attempts < j.Max || !j.Granted:
			if j.Attempts == j.Max {
				j.Granted = true
				j.Max++
			}
			j.free()
			j.Status, j.due, j.Error = 0, true, leaseGone
			requeued = append(requeued, id)
		default:
			j.end(4, notifyq.ReasonLeaseExpired)
			j.Error = leaseGone
			dead = append(dead, store.DeadLetter{ID: id, Attempt: j.Attempts, Reason: j.Reason})
		}
	}
	got, err := m.b.store.Recover(m.ctx, m.b.Pool, 10, true)
	require.NoError(r, err)
	require.ElementsMatch(r, requeued, got.Requeued)
	require.ElementsMatch(r, dead, got.DeadLettered)
}

// settle records outcomes of all kinds in one batch.
func (m *model) settle(r *rapid.T) {
	claims := m.held(r)
	live := m.liveOf(claims)
	batch := &store.Batch{Worker: "w", Events: true}
	for _, c := range claims {
		m.texts++
		text := fmt.Sprintf("text %d", m.texts)
		kinds := []string{"sent", "failed", "dead", "overdue", "release", "release with why"}
		if !c.last {
			kinds = append(kinds, "retry", "retry later")
		}
		kind := rapid.SampledFrom(kinds).Draw(r, "kind")
		var follow func(j *modelJob)
		switch kind {
		case "sent":
			batch.Sent = append(batch.Sent, store.Sent{ID: c.id, Token: c.token, ProviderID: text})
			follow = func(j *modelJob) { j.end(2, ""); j.Provider = text }
		case "failed", "dead":
			status, reason := int16(3), notifyq.ReasonRefused
			if kind == "dead" {
				status, reason = 4, notifyq.ReasonExhausted
			}
			batch.Ended = append(batch.Ended, store.Ended{ID: c.id, Token: c.token, Status: status, Reason: reason, Error: text, Class: "transient"})
			follow = func(j *modelJob) { j.end(status, reason); j.Error = text }
		case "overdue":
			batch.Ended = append(batch.Ended, store.Ended{ID: c.id, Token: c.token, Status: 3, Reason: notifyq.ReasonExpired})
			follow = func(j *modelJob) { j.end(3, notifyq.ReasonExpired); j.Attempts-- }
		case "release with why":
			batch.Released = append(batch.Released, store.Released{ID: c.id, Token: c.token, Error: text})
			follow = func(j *modelJob) { j.free(); j.Status, j.due, j.Error = 0, true, text; j.Attempts-- }
		case "release":
			batch.Released = append(batch.Released, store.Released{ID: c.id, Token: c.token})
			follow = func(j *modelJob) { j.free(); j.Status, j.due = 0, true; j.Attempts-- }
		default:
			var delay time.Duration
			if kind == "retry later" {
				delay = time.Hour
			}
			batch.Retried = append(batch.Retried, store.Retried{ID: c.id, Token: c.token, Delay: delay, Error: text, Class: "transient"})
			follow = func(j *modelJob) { j.free(); j.Status, j.due, j.Error = 0, delay == 0, text }
		}
		if m.live(c) {
			follow(m.jobs[c.id])
		}
	}
	done, err := m.b.store.Record(m.ctx, m.b.Pool, batch)
	require.NoError(r, err)
	require.ElementsMatch(r, live, done, "who has lost the claim changes nothing, and is told")
}

func (m *model) deferClaim(r *rapid.T) {
	c := m.held(r)[0]
	done, err := m.b.store.Admit(m.ctx, m.b.Pool, nil, nil, nil,
		func(now, _ time.Time, _ []store.Reservation) ([]store.Reservation, []store.Deferral) {
			return nil, []store.Deferral{{ID: c.id, Token: c.token, Due: now.Add(time.Hour)}}
		})
	require.NoError(r, err)
	require.Equal(r, m.live(c), len(done) == 1)
	if m.live(c) {
		j := m.jobs[c.id]
		j.free()
		j.Status, j.due = 0, false
		j.Attempts--
	}
}

func (m *model) cancel(r *rapid.T) {
	id, j := m.job(r)
	done, err := m.b.store.Cancel(m.ctx, m.b.Pool, id, nil, store.By{Reason: "because"})
	require.NoError(r, err)
	require.Equal(r, j.Status == 0, done)
	if done {
		j.end(5, "because")
	}
}

func (m *model) redrive(r *rapid.T) {
	id, j := m.job(r)
	done, err := m.b.store.Redrive(m.ctx, m.b.Pool, id, nil, store.By{})
	require.NoError(r, err)
	may := (j.Status == 3 || j.Status == 4) && j.Reason != notifyq.ReasonExpired && !j.timeOver
	require.Equal(r, may, done)
	if done {
		j.modelRow = modelRow{Max: j.asked, Redrives: j.Redrives + 1, Error: j.Error}
		j.due = true
	}
}

func (m *model) timeIsOver(r *rapid.T) {
	id, j := m.job(r)
	m.b.expire(id)
	j.timeOver = true
}

func (m *model) expire(r *rapid.T) {
	var over []uuid.UUID
	for id, j := range m.jobs {
		if j.Status == 0 && j.timeOver {
			j.end(3, notifyq.ReasonExpired)
			over = append(over, id)
		}
	}
	got, err := m.b.store.Expire(m.ctx, m.b.Pool, 10, true)
	require.NoError(r, err)
	require.ElementsMatch(r, over, got)
}

func (m *model) comeDue(r *rapid.T) {
	id, j := m.job(r)
	if j.Status != 0 {
		r.Skip("it does not wait")
	}
	m.b.exec(`update @notification_queue set next_attempt_at = now() where id = $1`, id)
	j.due = true
}
