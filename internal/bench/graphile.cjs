// What bench runs to measure graphile-worker: node drain.cjs DSN JOBS. One process, set for throughput: jobs are fetched 500
// at a time into its local queue, and their completions batched.
const { Logger, makeWorkerUtils, run } = require('graphile-worker');
const { Client } = require('pg');

const [dsn, count] = [process.argv[2], Number(process.argv[3])];
const left = 'select count(*)::int as n from graphile_worker._private_jobs';

(async () => {
  const utils = await makeWorkerUtils({ connectionString: dsn });
  await utils.migrate();
  await utils.release();
  const db = new Client({ connectionString: dsn });
  await db.connect();
  for (let from = 0; from < count; from += 5000) {
    await db.query(
      `select graphile_worker.add_jobs(array_agg(json_populate_record(null::graphile_worker.job_spec,
         json_build_object('identifier', 'notify', 'payload', json_build_object('recipient', 'user' || i || '@example.test',
           'channel', 'EMAIL', 'payload', json_build_object('subject', 'hi', 'body', 'hello there'))))))
         from generate_series($1::int, $2::int) i`,
      [from, Math.min(from + 5000, count) - 1],
    );
  }
  await db.query('vacuum analyze');
  await db.query('checkpoint');

  let handled = 0;
  let allHandled;
  const handledAll = new Promise((resolve) => { allHandled = resolve; });
  const began = process.hrtime.bigint();
  const runner = await run({
    connectionString: dsn,
    noHandleSignals: true,
    logger: new Logger(() => () => {}),
    taskList: { notify: async () => { handled += 1; if (handled === count) allHandled(); } },
    preset: {
      worker: {
        connectionString: dsn, concurrentJobs: 24, maxPoolSize: 20, pollInterval: 200, completeJobBatchDelay: 0,
        failJobBatchDelay: 0, localQueue: { size: 500, refetchDelay: { durationMs: 10 } },
      },
    },
  });
  await handledAll;
  while ((await db.query(left)).rows[0].n > 0) await new Promise((resolve) => { setTimeout(resolve, 10); });
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  await runner.stop();
  await db.end();
  process.stdout.write(JSON.stringify({ 'jobs/s': count / seconds }));
})().catch((error) => { console.error(error); process.exit(1); });
