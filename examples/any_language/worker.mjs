// A complete Holdfast worker for Node 20 without dependencies.
// Usage: HOLDFAST_URL=http://127.0.0.1:8787 HOLDFAST_TOKEN=… node worker.mjs [STREAM…]
import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

// What this worker can run. `signal` is aborted when the job is to stop; `progress` is what people see meanwhile.
const tasks = {
  async echo({ text = null, seconds = 0, error }, { signal, progress }) {
    progress({ note: "working" });
    await sleep(seconds * 1000, undefined, { signal });
    if (error) throw new Error(error);
    return { echo: text, by: "node" };
  },
};

const { HOLDFAST_URL: url, HOLDFAST_TOKEN: token } = process.env;
if (!url || !token) throw new Error("set HOLDFAST_URL and HOLDFAST_TOKEN (a token with scope worker)");
const me = `node-${hostname()}-${process.pid}`;
const streams = process.argv.length > 2 ? process.argv.slice(2) : null;
const stopping = new AbortController();
for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => stopping.abort("stopping"));
const say = (...words) => console.error(`${me}:`, ...words);
async function post(endpoint, body, { signal, timeout = 70_000 } = {}) {
  const answer = await fetch(`${url}/internal/worker/${endpoint}`, {
    method: "POST",
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: JSON.stringify({ worker_id: me, ...body }),
    signal: AbortSignal.any([AbortSignal.timeout(timeout), ...(signal ? [signal] : [])]),
  });
  if (answer.ok) return answer.json();
  throw Object.assign(new Error(`${answer.status} ${await answer.text()}`), { status: answer.status });
}

// Whatever got lost on its way may be sent again: a report is recorded once, and answered the same each time.
async function insist(endpoint, body, tries = 8) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await post(endpoint, body);
    } catch (error) {
      const isRefused = error.status < 500 && ![408, 429].includes(error.status);
      if (isRefused || attempt === tries) return say(`could not ${endpoint} ${body.job_id ?? ""}: ${error.message}`);
      await sleep(Math.min(250 * 2 ** attempt, 10_000) * (0.5 + Math.random() / 2));
    }
  }
}

// Keeps the lease while the work goes on, and ends the work when the lease is lost or a cancel was asked for.
async function keep(job, state, work, over) {
  let due = job.since + job.lease_ttl_seconds * 1000;
  while (!over.aborted) {
    await sleep(job.heartbeat_interval_seconds * 1000, undefined, { signal: over }).catch(() => {});
    const sent = performance.now();
    if (over.aborted || sent >= due) return work.abort("lost"); // after the end of the work nobody looks at it
    const body = { job_id: job.job_id, lease_token: job.lease_token, progress: state.progress };
    const answer = await post("heartbeat", body, { signal: over, timeout: Math.ceil(due - sent) }).catch(() => null);
    if (answer === null) continue; // no answer: go on as long as the lease lasts
    if (!answer.ok || answer.cancel) return work.abort(answer.ok ? "cancelled" : "lost");
    due = sent + answer.lease_ttl_seconds * 1000;
  }
}

async function run(job) {
  const { job_id, attempt_id, lease_token, stream, message_id } = job;
  const lease = { job_id, attempt_id, lease_token, stream, message_id }; // all that a report needs
  say(`runs ${attempt_id}`);
  const [work, over, state] = [new AbortController(), new AbortController(), { progress: null }];
  stopping.signal.addEventListener("abort", () => work.abort("stopping"), { signal: over.signal });
  if (stopping.signal.aborted) work.abort("stopping");
  const limit = job.timeout_seconds && setTimeout(() => work.abort("timeout"), job.timeout_seconds * 1000);
  const beating = keep(job, state, work, over.signal);
  const fail = (code, message, stack) => ["fail", { ...lease, error: { code, message, stack } }];
  const context = { attempt: job.attempt, signal: work.signal, progress: (value) => (state.progress = value) };
  const report = await tasks[job.task](job.payload, context).then(
    (result) => ["complete", { ...lease, result: result ?? null }],
    (error) => {
      if (work.signal.reason === "timeout") return fail("timeout", `ran longer than ${job.timeout_seconds} s`);
      return work.signal.aborted ? ["release", lease] : fail(error.name, String(error.message), error.stack);
    },
  );
  clearTimeout(limit);
  if (work.signal.reason === "lost") return say(`lost its lease on ${job_id}`);
  over.abort();
  await beating;
  await insist(...report);
}
say(`works for ${url}, node ${process.version}`);
let ask = { streams, request_id: randomUUID() }; // sent again, to any control plane, it gets the same jobs
while (!stopping.signal.aborted) {
  const body = { ...ask, tasks: Object.keys(tasks), max_wait_ms: 20_000 };
  const sent = performance.now();
  let job = await post("claim", body, { signal: stopping.signal }).catch((error) => error);
  // Told to stop while asking: what this very request was given, if anything, is asked for again and given back.
  if (stopping.signal.aborted) job = (await insist("claim", { ...ask, tasks: [] }, 3)) ?? {};
  if (job instanceof Error) say(`cannot claim: ${job.message}`, await sleep(2000));
  else ask = { streams, request_id: randomUUID() };
  if (job.claimed) await run({ ...job, since: sent + (job.waited_ms ?? 0) }); // no lease began earlier than that
}
say("stopped");
