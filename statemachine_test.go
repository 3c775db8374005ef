package notifyq_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// Rows are from, columns to, in the order of Statuses. a: workers by themselves, o: operators.
var transitions = map[notifyq.Status]string{
	notifyq.StatusPending:      ".a.a.o",
	notifyq.StatusProcessing:   "a.aaa.",
	notifyq.StatusSent:         "......",
	notifyq.StatusFailed:       "o.....",
	notifyq.StatusDeadLettered: "o.....",
	notifyq.StatusCancelled:    "......",
}

func TestEveryPairOfStates(t *testing.T) {
	t.Parallel()
	require.Len(t, transitions, len(notifyq.Statuses()))
	for _, from := range notifyq.Statuses() {
		for i, to := range notifyq.Statuses() {
			allowed := transitions[from][i]
			require.Equal(t, allowed == 'a', notifyq.WorkersMay(from, to), "workers: %s to %s", from, to)
			require.Equal(t, allowed == 'o', notifyq.OperatorsMay(from, to), "operators: %s to %s", from, to)
		}
	}
}

func TestNothingLeavesATerminalStateByItself(t *testing.T) {
	t.Parallel()
	for _, s := range notifyq.Statuses() {
		terminal := s != notifyq.StatusPending && s != notifyq.StatusProcessing
		require.Equal(t, terminal, s.Terminal(), s)
		for _, to := range notifyq.Statuses() {
			require.False(t, terminal && notifyq.WorkersMay(s, to), "%s to %s", s, to)
		}
	}
	require.False(t, notifyq.Status("").Terminal())
	require.False(t, notifyq.Status("sent").Terminal())
}

func TestStatesAndTheirNumbersMatch(t *testing.T) {
	t.Parallel()
	for i, s := range notifyq.Statuses() {
		n, ok := s.Number()
		require.True(t, ok)
		require.EqualValues(t, i, n)
		require.Equal(t, s, notifyq.StatusFromNumber(n))
	}
	require.Empty(t, notifyq.StatusFromNumber(-1))
	require.Empty(t, notifyq.StatusFromNumber(int16(len(notifyq.Statuses()))))
	_, ok := notifyq.Status("BOGUS").Number()
	require.False(t, ok)
}

// jobInEachState makes one job of every state, by the worker's and the operators' own means.
func jobInEachState(b *workerBundle) map[notifyq.Status]uuid.UUID {
	jobs := map[notifyq.Status]uuid.UUID{}
	jobs[notifyq.StatusSent] = b.schedule()
	w := b.run(accepting())
	b.await(jobs[notifyq.StatusSent], notifyq.StatusSent)
	require.NoError(b.t, w.stop())

	jobs[notifyq.StatusFailed] = b.schedule()
	w = b.run(failing(notifyq.Permanent(errNo)))
	b.await(jobs[notifyq.StatusFailed], notifyq.StatusFailed)
	require.NoError(b.t, w.stop())

	jobs[notifyq.StatusDeadLettered] = b.schedule(withAttempts(1))
	w = b.run(failing(errNo))
	b.await(jobs[notifyq.StatusDeadLettered], notifyq.StatusDeadLettered)
	require.NoError(b.t, w.stop())

	jobs[notifyq.StatusProcessing] = b.schedule()
	require.Len(b.t, b.crash(1), 1)

	later := func(n *notifyq.Notification) { n.Delay = time.Hour }
	jobs[notifyq.StatusCancelled] = b.schedule(later)
	_, err := b.client.Cancel(b.t.Context(), jobs[notifyq.StatusCancelled], notifyq.Operation{})
	require.NoError(b.t, err)
	jobs[notifyq.StatusPending] = b.schedule(later)
	return jobs
}

func TestOperatorsReachOnlyWhatTheStateMachineAllows(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	jobs := jobInEachState(b)
	for from, id := range jobs {
		require.Equal(t, from, b.job(id).Status)
		if !notifyq.OperatorsMay(from, notifyq.StatusPending) {
			before := b.job(id)
			job, err := b.client.Redrive(t.Context(), id, notifyq.Operation{})
			require.ErrorIs(t, err, notifyq.ErrNotRedrivable, from)
			require.Equal(t, before, job)
			require.Equal(t, before, b.job(id), "a refusal changes nothing")
		}
		if from != notifyq.StatusCancelled && !notifyq.OperatorsMay(from, notifyq.StatusCancelled) {
			before := b.job(id)
			job, err := b.client.Cancel(t.Context(), id, notifyq.Operation{})
			require.ErrorIs(t, err, notifyq.ErrNotCancellable, from)
			require.Equal(t, before, job)
			require.Equal(t, before, b.job(id), "a refusal changes nothing")
		}
	}
	for from, id := range jobs {
		if notifyq.OperatorsMay(from, notifyq.StatusPending) {
			job, err := b.client.Redrive(t.Context(), id, notifyq.Operation{})
			require.NoError(t, err, from)
			require.Equal(t, notifyq.StatusPending, job.Status)
		}
	}
	job, err := b.client.Cancel(t.Context(), jobs[notifyq.StatusPending], notifyq.Operation{})
	require.NoError(t, err)
	require.Equal(t, notifyq.StatusCancelled, job.Status)
}
