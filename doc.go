// Package notifyq is a notification queue on PostgreSQL, as a library.
//
// A service schedules a notification inside its own transaction, and workers, in the same process or in others, deliver
// it through a [Provider]: at its due time, highest priority first, with retries, a rolling limit per recipient, leases
// that survive crashes, dead letters that can be redriven, and an event for each outcome in a transactional outbox.
// PostgreSQL is all it needs.
//
//	client, err := notifyq.NewClient(pool, notifyq.ClientConfig{})
//
//	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if err := placeOrder(ctx, tx, order); err != nil {
//			return err
//		}
//		_, err := client.ScheduleTx(ctx, tx, notifyq.Notification{
//			IdempotencyKey: "order-confirmed-" + order.ID,
//			Recipient:      order.Email,
//			Channel:        notifyq.ChannelEmail,
//			Payload:        payload, // any JSON
//		})
//		return err
//	})
//
//	worker, err := notifyq.NewWorker(pool, notifyq.WorkerConfig{
//		Client: client,
//		Providers: map[notifyq.Channel]notifyq.ProviderConfig{
//			notifyq.ChannelEmail: {Provider: provider},
//		},
//	})
//	err = worker.Run(ctx) // until ctx ends, then drains
//
// With a [Publisher] the worker also runs a [Relay], which sends the events to a webhook or a broker.
//
// The tables are made by package [github.com/notifyq/notifyq/migrate], before the first use.
//
// # The life of a job
//
//	         claim (attempt + 1)
//	PENDING ───────────────────▶ PROCESSING ───▶ SENT            accepted by the provider
//	   ▲                             │ ├───────▶ FAILED          refused for good, or expired
//	   └─────────────────────────────┘ └───────▶ DEAD_LETTERED   attempts used up
//	     retry, rate limit, shutdown, recovery
//
//	PENDING ──▶ CANCELLED                by Client.Cancel
//	FAILED, DEAD_LETTERED ──▶ PENDING    by Client.Redrive
//
// # What is promised
//
// At most one worker holds a job at a time. Every attempt carries the same delivery key, the job's id, after a crash and
// after a redrive too: a provider that honours keys delivers once. Nothing that was accepted is lost by a crash at any
// point. A provider, or a recipient, that makes trouble slows only itself.
//
// # Caveats
//
// Delivery is at least once. Between a provider's acceptance and its record lies a moment in which a worker can die, and
// its job is then delivered again under the same key. With a provider that ignores keys the recipient sees it twice; a
// notification that must rather be missed than repeated sets OnAmbiguous to [AmbiguousPark].
//
// Events are published at least once, too: a receiver de-duplicates by their ids.
//
// No order is promised among jobs of one priority, or among events. Priority is strict unless LowPriorityShare is set:
// an endless stream of high priority holds the rest up.
//
// A rate limit counts admissions, not successes, and holds in this library's workers only.
//
// A worker opens three connections of its own, besides the pool it is given, and so does a [Relay]; one beside a worker
// opens two. One of the three is for LISTEN, and is saved by PollOnly: other processes tell there that something is due.
// Polling finds that too, only later. Behind PgBouncer in transaction mode nothing is heard, which workers notice; the
// pool's configuration needs DefaultQueryExecMode set to pgx.QueryExecModeCacheDescribe (or Exec) there, and migrations a
// direct connection.
//
// Everything that is ordered or limited by time goes by the database's clock.
package notifyq
