package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/schema"
	"github.com/notifyq/notifyq/internal/store"
)

// refusedPrefix begins the recipients that the mock provider refuses for good.
const refusedPrefix = "invalid"

// SQLSTATEs of Deliver's first statement and of Setup.
const (
	codeUndefinedTable     = "42P01"
	codeUndefinedSchema    = "3F000"
	codeInsufficientRights = "42501"
)

// Provider is a notifyq.Provider that sends nothing. It does what a provider with idempotency keys does: it keeps the
// delivery keys that it accepted in a table, so that all workers together deliver a key once, and answers a repeated one
// with the same provider id. It keeps nothing else of a notification.
//
// Recipients that begin with "invalid" are refused for good. The first call makes the table, if it is not there.
type Provider struct {
	pool        *pgxpool.Pool
	failureRate float64
	logger      *slog.Logger
	random      func() float64
	sql         providerStatements
}

// ProviderConfig is what NewProvider needs beside a pool.
type ProviderConfig struct {
	Schema string // where the table is, or will be
	// FailureRate is the part of the attempts, 0 to 1, that fail transiently before anything is accepted.
	FailureRate float64
	Logger      *slog.Logger // nil is silent
}

// ProviderStats counts since the table was made.
type ProviderStats struct {
	Deliveries int64 // keys
	Repeats    int64 // accepted attempts beyond the first of a key
}

// NewProvider touches nothing.
func NewProvider(pool *pgxpool.Pool, cfg ProviderConfig) (*Provider, error) {
	if !schema.ValidName(cfg.Schema) {
		return nil, &schema.Error{Problem: schema.NameInvalid, Schema: cfg.Schema}
	}
	if !(cfg.FailureRate >= 0 && cfg.FailureRate <= 1) {
		return nil, errors.New("the failure rate must be between 0 and 1")
	}
	p := &Provider{
		pool: pool, failureRate: cfg.FailureRate, logger: cfg.Logger, random: rand.Float64, sql: renderProvider(cfg.Schema),
	}
	if p.logger == nil {
		p.logger = slog.New(slog.DiscardHandler)
	}
	return p, nil
}

type providerStatements struct{ lock, create, accept, stats string }

func renderProvider(name string) providerStatements {
	table := schema.Quote(name) + ".demo_deliveries"
	return providerStatements{
		lock: render(name).lock,
		create: `create table if not exists ` + table + ` (
			delivery_key     uuid primary key,
			provider_id      text not null,
			delivered_at     timestamptz not null default now(),
			last_repeated_at timestamptz,
			repeats          bigint not null default 0
		)`,
		// One statement: of two attempts with one key exactly one delivers, and both get the id of that one.
		accept: `insert into ` + table + ` as d (delivery_key, provider_id) values ($1, $2)
			on conflict (delivery_key) do update set repeats = d.repeats + 1, last_repeated_at = now()
			returning provider_id, repeats`,
		stats: `select count(*), coalesce(sum(repeats), 0)::bigint from ` + table,
	}
}

// Setup creates the table, unless it is there. The schema must exist. Deliver calls it where the table is missing.
func (p *Provider) Setup(ctx context.Context) error {
	if err := p.setup(ctx); err != nil {
		return fmt.Errorf("create the mock provider's table: %s", store.Describe(err))
	}
	return nil
}

func (p *Provider) setup(ctx context.Context) error {
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, p.sql.lock); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, p.sql.create)
		return err
	})
}

// Stats counts what was delivered.
func (p *Provider) Stats(ctx context.Context) (stats ProviderStats, err error) {
	if err := p.pool.QueryRow(ctx, p.sql.stats).Scan(&stats.Deliveries, &stats.Repeats); err != nil {
		return stats, fmt.Errorf("count the mock provider's deliveries: %s", store.Describe(err))
	}
	return stats, nil
}

// Deliver accepts, refuses a recipient that begins with "invalid" for good, or fails transiently: at the failure rate, and
// while the database is away. A role that may not create the missing table is a misconfiguration.
func (p *Provider) Deliver(ctx context.Context, d notifyq.Delivery) (notifyq.Receipt, error) {
	if strings.HasPrefix(d.Recipient, refusedPrefix) {
		return notifyq.Receipt{}, notifyq.Permanent(errors.New("mock provider: the recipient is invalid"))
	}
	if p.random() < p.failureRate {
		return notifyq.Receipt{}, errors.New("mock provider: simulated failure")
	}
	id, repeats, err := p.accept(ctx, d.Key)
	if code := store.Code(err); code == codeUndefinedTable || code == codeUndefinedSchema {
		if err = p.setup(ctx); err == nil {
			id, repeats, err = p.accept(ctx, d.Key)
		}
	}
	if err != nil {
		failure := fmt.Errorf("mock provider: %s", store.Describe(err))
		if store.Code(err) == codeInsufficientRights {
			return notifyq.Receipt{}, notifyq.Misconfigured(failure)
		}
		return notifyq.Receipt{}, failure
	}
	p.logger.DebugContext(ctx, "demo.delivered", "jobId", d.Key, "attempt", d.Attempt, "repeats", repeats)
	return notifyq.Receipt{ProviderID: id}, nil
}

func (p *Provider) accept(ctx context.Context, key uuid.UUID) (id string, repeats int64, err error) {
	row := p.pool.QueryRow(ctx, p.sql.accept, pgtype.UUID{Bytes: key, Valid: true}, "mock-"+uuid.NewString())
	err = row.Scan(&id, &repeats)
	return id, repeats, err
}
