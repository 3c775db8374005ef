-- Names by which rows are found compare by bytes (collate "C"): faster than by a language's rules, and an index stays right
-- when the operating system's collation changes.

-- What was asked. Written once; only EraseRecipient changes a row, and housekeeping removes it with its outcome.
create table {{.Schema}}.notifications (
    id                  uuid        primary key,
    tenant              text collate "C" not null default '',
    idempotency_key     text collate "C" not null,
    request_fingerprint bytea       not null,
    recipient           text        not null,
    recipient_key       text collate "C" not null,
    channel             text collate "C" not null,
    payload             json        not null,
    priority            smallint    not null,
    scheduled_at        timestamptz not null,
    expires_at          timestamptz,
    max_attempts        smallint    not null,
    on_ambiguous        smallint    not null default 0,
    trace_context       text,
    created_at          timestamptz not null default statement_timestamp(),
    erased_at           timestamptz,
    constraint notifications_idempotency unique (idempotency_key, tenant),
    constraint notifications_key_not_empty check (idempotency_key <> ''),
    constraint notifications_recipient check ((recipient = '') = (erased_at is not null)),
    -- ^[A-Za-z][A-Za-z0-9_.-]{0,63}$, for a fifth of what a regular expression costs each row.
    constraint notifications_channel check (length(channel) <= 64
        and (left(channel, 1) between 'a' and 'z' or left(channel, 1) between 'A' and 'Z')
        and btrim(channel, 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-') = ''),
    constraint notifications_priority check (priority between 1 and 3),
    constraint notifications_max_attempts check (max_attempts between 1 and 1000),
    constraint notifications_on_ambiguous check (on_ambiguous in (0, 1)),
    constraint notifications_expiry check (expires_at > scheduled_at)
);
-- Both leave out what nobody asks for by them. That also keeps the planner from taking one for a lookup by id.
create index notifications_tenant on {{.Schema}}.notifications (tenant, id) where tenant <> '';
create index notifications_recipient_key on {{.Schema}}.notifications (recipient_key, id) where recipient_key <> '';

-- What is live: PENDING (0) or PROCESSING (1). A row goes when its job ends, so this table stays as small as the work.
create table {{.Schema}}.notification_queue (
    id                     uuid        primary key,
    next_attempt_at        timestamptz not null,
    expires_at             timestamptz,
    locked_at              timestamptz,
    leased_until           timestamptz,
    started_at             timestamptz,
    first_attempt_at       timestamptz,
    last_redriven_at       timestamptz,
    updated_at             timestamptz not null,
    claim_token            uuid,
    redrive_count          integer     not null default 0,
    priority               smallint    not null,
    status                 smallint    not null default 0,
    attempt_count          smallint    not null default 0,
    max_attempts           smallint    not null,
    on_ambiguous           smallint    not null default 0,
    reconciliation_granted boolean     not null default false,
    tenant                 text collate "C" not null,
    channel                text collate "C" not null,
    locked_by              text,
    last_error             text,
    constraint notification_queue_status check (status in (0, 1)),
    constraint notification_queue_priority check (priority between 1 and 3),
    constraint notification_queue_claim check (num_nonnulls(claim_token, locked_by, locked_at, leased_until) = 4 * status),
    constraint notification_queue_started check (started_at is null or status = 1),
    constraint notification_queue_attempts check (attempt_count between 0 and max_attempts),
    constraint notification_queue_claimable check (status = 1 or attempt_count < max_attempts),
    constraint notification_queue_first_attempt check (attempt_count = 0 or first_attempt_at is not null),
    constraint notification_queue_redrive check ((redrive_count = 0) = (last_redriven_at is null)),
    constraint notification_queue_redrive_count check (redrive_count between 0 and 1000),
    constraint notification_queue_on_ambiguous check (on_ambiguous in (0, 1))
) with (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05, vacuum_truncate = off
);
-- The claim walks this in its own order and stops at its limit.
create index notification_queue_due on {{.Schema}}.notification_queue (channel, priority desc, next_attempt_at, id)
    where status = 0;
-- Claims in progress: recovery reads them all (workers times batch size, never more), lists page through them. The
-- lease's end is left out on purpose, so that renewing it is a HOT update.
create index notification_queue_processing on {{.Schema}}.notification_queue (id) where status = 1;
create index notification_queue_expiry on {{.Schema}}.notification_queue (expires_at)
    where status = 0 and expires_at is not null;

-- How it ended: SENT (2), FAILED (3), DEAD_LETTERED (4) or CANCELLED (5). Appended; a redrive takes a row back.
create table {{.Schema}}.notification_outcomes (
    id                     uuid        primary key,
    finished_at            timestamptz not null,
    first_attempt_at       timestamptz,
    last_redriven_at       timestamptz,
    redrive_count          integer     not null default 0,
    status                 smallint    not null,
    attempt_count          smallint    not null,
    max_attempts           smallint    not null,
    reconciliation_granted boolean     not null default false,
    tenant                 text collate "C" not null,
    reason                 text,
    last_error             text,
    provider_id            text,
    constraint notification_outcomes_status check (status between 2 and 5),
    constraint notification_outcomes_attempts check (attempt_count between 0 and max_attempts),
    constraint notification_outcomes_sent check (status <> 2 or (attempt_count > 0 and first_attempt_at is not null)),
    constraint notification_outcomes_reason check (status not in (3, 4) or reason is not null),
    constraint notification_outcomes_redrive check ((redrive_count = 0) = (last_redriven_at is null)),
    constraint notification_outcomes_redrive_count check (redrive_count between 0 and 1000)
) with (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1
);
-- Lists and redrives by status. SENT, nearly all of history, is left out: it pages through the primary key.
create index notification_outcomes_status on {{.Schema}}.notification_outcomes (status, id) where status <> 2;
create index notification_outcomes_tenant_status on {{.Schema}}.notification_outcomes (tenant, status, id)
    where status <> 2;

-- Attempts that did not end in SENT; the last attempt of a SENT job is told by its outcome.
create table {{.Schema}}.notification_attempts (
    id            uuid        not null,
    redrive_count integer     not null,
    number        smallint    not null,
    started_at    timestamptz not null,
    ended_at      timestamptz not null,
    class         text        not null,
    error         text,
    worker        text        not null,
    primary key (id, redrive_count, number),
    constraint notification_attempts_number check (number > 0),
    constraint notification_attempts_class check
        (class in ('transient', 'permanent', 'ambiguous', 'timeout', 'panic', 'lease_expired')),
    constraint notification_attempts_times check (started_at <= ended_at)
);

-- Who asked for what, and why.
create table {{.Schema}}.operations (
    id          bigint      generated always as identity primary key,
    at          timestamptz not null default statement_timestamp(),
    what        text        not null,
    tenant      text collate "C",
    job_id      uuid,
    event_id    uuid,
    channel     text collate "C",
    endpoint    text,
    actor       text        not null,
    reason      text        not null,
    affected    integer     not null default 1,
    paced_until timestamptz,
    constraint operations_what check (what in
        ('cancel', 'redrive', 'redrive_many', 'pause', 'resume', 'erase', 'redrive_event', 'redrive_events', 'enable_endpoint')),
    constraint operations_subject check (
        (what in ('cancel', 'redrive')) = (job_id is not null) and (what in ('pause', 'resume')) = (channel is not null)
        and (what = 'redrive_event') = (event_id is not null)
        and case what when 'enable_endpoint' then endpoint is not null when 'redrive_events' then true else endpoint is null end)
);
create index operations_job on {{.Schema}}.operations (job_id, id) where job_id is not null;
create index operations_paced on {{.Schema}}.operations (paced_until) where paced_until is not null;

-- Admissions of the rolling limit: one row a job, at the time its delivery was admitted, or the future time at which
-- its turn comes (booked). limit_key is a hash of tenant and recipient key: 16 bytes, and no address for people to read.
create table {{.Schema}}.rate_limit_reservations (
    job_id      uuid        primary key,
    limit_key   uuid        not null,
    reserved_at timestamptz not null,
    channel     text collate "C" not null,
    booked      boolean     not null default false
) with (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000
);
create index rate_limit_reservations_key on {{.Schema}}.rate_limit_reservations (limit_key, reserved_at, channel);

-- Events to publish. Those of jobs have an id derived from job, status and redrive count, so that the primary key is
-- also the uniqueness of an event; topic and key are set on a service's own events only. While an event is claimed,
-- next_attempt_at is the end of the lease: a claim that runs out is due again without anybody's doing.
create table {{.Schema}}.outbox_events (
    id              uuid        primary key,
    created_at      timestamptz not null default statement_timestamp(),
    next_attempt_at timestamptz not null default statement_timestamp(),
    published_at    timestamptz,
    parked_at       timestamptz,
    job_id          uuid,
    claim_token     uuid,
    redrive_count   integer,
    failure_count   integer     not null default 0,
    status          smallint,
    topic           text,
    key             text,
    locked_by       text,
    endpoint        text,
    parked_reason   text,
    last_error      text,
    body            bytea       not null,
    constraint outbox_events_kind check (
        case when job_id is null then topic is not null and key is not null and status is null and redrive_count is null
             else topic is null and key is null and status between 2 and 4 and redrive_count >= 0 end),
    constraint outbox_events_claim check ((claim_token is null) = (locked_by is null)),
    constraint outbox_events_end check (published_at is null or parked_at is null),
    constraint outbox_events_parked check
        (case when parked_at is null then parked_reason is null
              else parked_reason is not null and parked_reason in ('exhausted', 'refused', 'disabled') end),
    constraint outbox_events_ended_unclaimed check
        (claim_token is null or (published_at is null and parked_at is null)),
    constraint outbox_events_failures check (failure_count >= 0)
) with (
    fillfactor = 90,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0
);
create index outbox_events_due on {{.Schema}}.outbox_events (next_attempt_at, id)
    where published_at is null and parked_at is null;
-- What is not as it was written: claimed, failed, released or redriven. With the first due event it tells the oldest that is
-- pending, and costs an event that is published at once nothing but its claim.
create index outbox_events_touched on {{.Schema}}.outbox_events (created_at)
    where published_at is null and parked_at is null and next_attempt_at > created_at;
create index outbox_events_failing on {{.Schema}}.outbox_events (failure_count)
    where published_at is null and parked_at is null and failure_count > 0;
create index outbox_events_parked on {{.Schema}}.outbox_events (id) where parked_at is not null;
create index outbox_events_parked_endpoint on {{.Schema}}.outbox_events (endpoint, id)
    where parked_at is not null and endpoint is not null;
create index outbox_events_held on {{.Schema}}.outbox_events (endpoint) where parked_reason = 'disabled';
-- A service's own events may have ids that are no times, so they are pruned by this. A job's go by their ids.
create index outbox_events_published on {{.Schema}}.outbox_events (published_at)
    where published_at is not null and topic is not null;

create table {{.Schema}}.channel_states (
    channel   text collate "C" primary key,
    paused_at timestamptz
);

-- What is known of the receivers of events, by name and address (target): one that moves starts over. A row is written
-- when a relay meets a receiver, and when it begins to fail or recovers, not with every event. missed_since is from when on
-- an enabled receiver has events to get back.
create table {{.Schema}}.webhook_endpoints (
    name          text        not null,
    target        text        not null,
    failures      bigint      not null default 0,
    failing_since timestamptz,
    disabled_at   timestamptz,
    reason        text,
    enabled_at    timestamptz,
    missed_since  timestamptz,
    met_at        timestamptz not null default statement_timestamp(),
    primary key (name, target),
    constraint webhook_endpoints_failing check ((failures > 0) = (failing_since is not null)),
    constraint webhook_endpoints_disabled check ((disabled_at is null) = (reason is null))
);

-- The id of a job's event: the job's UUIDv7 with version 8 and, in place of its 12 sub-millisecond bits, the status
-- (2 bits) and the redrive count (10 bits). The 62 random bits that remain tell jobs apart. Every sent job pays for it, so
-- it is cut and joined instead of computed where it can be.
create function {{.Schema}}.event_id(job uuid, status smallint, redrives integer) returns uuid
    language sql immutable parallel safe
    return (left(job::text, 14)
        || case when status = 2 and redrives = 0 then '8000' else '8' || lpad(to_hex(((status - 2) << 10) | redrives), 3, '0') end
        || right(job::text, 18))::uuid;

-- The bytes that are published for a job's event: the webhook body of the specification. It is ASCII without backslashes,
-- so the cast is what convert_to() would give, for less.
create function {{.Schema}}.event_body(event uuid, job uuid, status smallint, attempts smallint, at_text text) returns bytea
    language sql immutable parallel safe
    return ('{"eventId":"' || event::text || '","jobId":"' || job::text
        || case status when 2 then '","status":"SENT","attemptCount":' when 3 then '","status":"FAILED","attemptCount":'
                       else '","status":"DEAD_LETTERED","attemptCount":' end
        || attempts::text || ',"timestamp":"' || at_text || '"}')::bytea;

-- One row a job, in words, for people and for reading single jobs. Lists page through the tables' own indexes.
create view {{.Schema}}.notification_jobs as
select n.id, n.tenant, n.idempotency_key, n.request_fingerprint, n.recipient, n.channel, n.payload,
       case n.priority when 1 then 'LOW' when 2 then 'NORMAL' else 'HIGH' end as priority,
       case coalesce(o.status, q.status) when 0 then 'PENDING' when 1 then 'PROCESSING' when 2 then 'SENT'
            when 3 then 'FAILED' when 4 then 'DEAD_LETTERED' when 5 then 'CANCELLED' end as status,
       n.scheduled_at, q.next_attempt_at, n.expires_at,
       coalesce(o.attempt_count, q.attempt_count) as attempt_count,
       coalesce(o.max_attempts, q.max_attempts) as max_attempts,
       coalesce(o.reconciliation_granted, q.reconciliation_granted) as reconciliation_granted,
       case n.on_ambiguous when 0 then 'retry' else 'park' end as on_ambiguous,
       q.locked_by, q.locked_at, q.leased_until, q.claim_token, q.started_at,
       coalesce(o.first_attempt_at, q.first_attempt_at) as first_attempt_at,
       coalesce(o.last_error, q.last_error) as last_error, o.reason, o.provider_id,
       case o.status when 2 then o.finished_at end as sent_at,
       case o.status when 3 then o.finished_at end as failed_at,
       case o.status when 4 then o.finished_at end as dead_lettered_at,
       case o.status when 5 then o.finished_at end as cancelled_at,
       coalesce(o.redrive_count, q.redrive_count) as redrive_count,
       coalesce(o.last_redriven_at, q.last_redriven_at) as last_redriven_at,
       n.trace_context, n.erased_at, n.created_at, coalesce(o.finished_at, q.updated_at) as updated_at
  from {{.Schema}}.notifications n
  left join {{.Schema}}.notification_queue q on q.id = n.id
  left join {{.Schema}}.notification_outcomes o on o.id = n.id;

-- What no single table can say. No row means that all of it holds. One statement, so one snapshot.
create function {{.Schema}}.check_invariants() returns table (invariant text, job_id uuid, detail text)
    language sql stable
begin atomic
    select 'a job has exactly one of a queue row and an outcome', n.id,
           case when q.id is null then 'it has neither' else 'it has both' end
      from {{.Schema}}.notifications n
      left join {{.Schema}}.notification_queue q on q.id = n.id
      left join {{.Schema}}.notification_outcomes o on o.id = n.id
     where (q.id is null) = (o.id is null)
    union all
    select 'a queue row belongs to a notification and agrees with it', q.id,
           case when n.id is null then 'no notification' else 'tenant, channel, priority, expiry or policy differs' end
      from {{.Schema}}.notification_queue q
      left join {{.Schema}}.notifications n on n.id = q.id
     where n.id is null
        or (n.tenant, n.channel, n.priority, n.on_ambiguous) is distinct from (q.tenant, q.channel, q.priority, q.on_ambiguous)
        or n.expires_at is distinct from q.expires_at
    union all
    select 'an outcome belongs to a notification and agrees with it', o.id,
           case when n.id is null then 'no notification' else 'tenant differs' end
      from {{.Schema}}.notification_outcomes o
      left join {{.Schema}}.notifications n on n.id = o.id
     where n.id is null or n.tenant <> o.tenant
    union all
    select 'the budget is the one asked for, plus one if reconciliation was granted', n.id, 'max_attempts is ' || s.max_attempts
      from {{.Schema}}.notifications n
      join (select q.id, q.max_attempts, q.reconciliation_granted from {{.Schema}}.notification_queue q
            union all
            select o.id, o.max_attempts, o.reconciliation_granted from {{.Schema}}.notification_outcomes o) s on s.id = n.id
     where s.max_attempts <> n.max_attempts + s.reconciliation_granted::integer
    union all
    select 'an erased job is finished', n.id, 'it is in the queue'
      from {{.Schema}}.notifications n
      join {{.Schema}}.notification_queue q on q.id = n.id
     where n.erased_at is not null
    union all
    select 'an attempt belongs to a job and was counted', a.id, 'generation ' || a.redrive_count || ', number ' || a.number
      from {{.Schema}}.notification_attempts a
      left join (select q.id, q.redrive_count, q.attempt_count from {{.Schema}}.notification_queue q
                 union all
                 select o.id, o.redrive_count, o.attempt_count from {{.Schema}}.notification_outcomes o) s on s.id = a.id
     where s.id is null or a.redrive_count > s.redrive_count
        or (a.redrive_count = s.redrive_count and a.number > s.attempt_count)
    union all
    select 'failed attempts are recorded without gaps', s.id, s.recorded || ' of ' || s.expected
      from (select t.id, t.expected,
                   (select count(*) from {{.Schema}}.notification_attempts a
                     where a.id = t.id and a.redrive_count = t.redrive_count) as recorded
              from (select q.id, q.redrive_count, q.attempt_count - q.status as expected
                      from {{.Schema}}.notification_queue q where q.attempt_count > q.status
                    union all
                    select o.id, o.redrive_count, o.attempt_count - case o.status when 2 then 1 else 0 end
                      from {{.Schema}}.notification_outcomes o
                     where o.attempt_count > case o.status when 2 then 1 else 0 end) t) s
     where s.recorded <> s.expected
    union all
    select 'an event tells what happened to its job', e.job_id, 'event ' || e.id
      from {{.Schema}}.outbox_events e
      left join {{.Schema}}.notification_queue q on q.id = e.job_id
      left join {{.Schema}}.notification_outcomes o on o.id = e.job_id
     where e.job_id is not null
       and (e.id <> {{.Schema}}.event_id(e.job_id, e.status, e.redrive_count)
         or e.redrive_count >= q.redrive_count
         or e.redrive_count > o.redrive_count
         or (e.redrive_count = o.redrive_count and e.status <> o.status))
    union all
    select 'a slot is booked for a live job', r.job_id, 'the job is not in the queue'
      from {{.Schema}}.rate_limit_reservations r
      left join {{.Schema}}.notification_queue q on q.id = r.job_id
     where r.booked and r.reserved_at > statement_timestamp() and q.id is null;
end;

---- create above / drop below ----

drop view {{.Schema}}.notification_jobs;
drop function {{.Schema}}.check_invariants();
drop function {{.Schema}}.event_body(uuid, uuid, smallint, smallint, text);
drop function {{.Schema}}.event_id(uuid, smallint, integer);
drop table {{.Schema}}.webhook_endpoints, {{.Schema}}.channel_states, {{.Schema}}.outbox_events,
    {{.Schema}}.rate_limit_reservations, {{.Schema}}.operations, {{.Schema}}.notification_attempts,
    {{.Schema}}.notification_outcomes, {{.Schema}}.notification_queue, {{.Schema}}.notifications;
