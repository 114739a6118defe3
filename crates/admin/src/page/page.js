// The page asks for the status once a second, and shows it. Counts only grow: a rate is the difference of two answers.
// Text from outside is only ever put into text nodes.
"use strict";

const EVERY_MS = 1000;
// The second answer is asked for sooner, so that there are rates at once.
const SECOND_MS = 250;
const KEPT = 120;

const history = [];
const byId = (id) => document.getElementById(id);

// ---- Numbers for people ----

function short(value) {
  const units = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];
  for (const [size, unit] of units) {
    if (Math.abs(value) >= size) return digits(value / size) + " " + unit;
  }
  return digits(value);
}

function digits(value) {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return digits(unit === 0 ? Math.round(value) : value) + " " + units[unit];
}

function duration(seconds) {
  if (seconds === null) return "–";
  if (seconds < 0.001) return digits(seconds * 1e6) + " µs";
  if (seconds < 1) return digits(seconds * 1e3) + " ms";
  if (seconds < 120) return digits(seconds) + " s";
  if (seconds < 7200) return digits(seconds / 60) + " min";
  if (seconds < 172800) return digits(seconds / 3600) + " h";
  return digits(seconds / 86400) + " days";
}

// A count with its noun.
const counted = (count, noun) => `${short(count)} ${noun}${count === 1 ? "" : "s"}`;

const percent = (share) => digits(100 * share) + " %";

// ---- Figures ----

// Changes since the previous answer, per second. A count that became less was restarted.
function rate(pair, of) {
  const { before, after, seconds } = pair;
  if (!before || seconds <= 0) return 0;
  const [was, is] = [of(before) ?? 0, of(after) ?? 0];
  return (is >= was ? is - was : is) / seconds;
}

// The duration below which this share of the commands between two answers stayed; null if there were none.
function quantile(pair, kind, share) {
  const buckets = (status) => status?.clients?.latencies.find((latency) => latency.kind === kind)?.buckets ?? [];
  const was = buckets(pair.before);
  const counts = buckets(pair.after).map((bucket, place) => ({
    most: bucket.most_seconds,
    count: Math.max(0, bucket.count - (was[place]?.count ?? 0)),
  }));
  const all = counts.reduce((sum, bucket) => sum + bucket.count, 0);
  let left = all * share;
  let least = 0;
  for (const { most, count } of counts) {
    if (count > 0 && left <= count) return most === null ? least : least + (most - least) * (left / count);
    left -= count;
    least = most ?? least;
  }
  return null;
}

const sumOf = (list, of) => (list ?? []).reduce((sum, part) => sum + of(part), 0);
const fabric = (status, field) => sumOf((status?.database ?? status?.tree)?.fabric, (part) => part[field]);
const stalled = (status) => sumOf(status?.database?.stalls, (part) => part.seconds);
const nodes = (status, field) => sumOf(status?.memory_nodes, (part) => part[field]);

// ---- Elements ----

function element(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name === "class") made.className = value;
    else if (name === "width") made.style.width = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null).map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

function bar(parts, most) {
  const shown = parts.filter(([, value]) => value > 0);
  const share = ([kind, value]) => element("span", { class: kind, width: 100 * Math.min(1, value / Math.max(most, 1e-12)) + "%" });
  return element("div", { class: "bar" }, ...shown.map(share));
}

// A table whose columns of numbers are aligned to the right.
function table(id, columns, rows, nothing) {
  const head = columns.map(([name, kind]) => element("th", { scope: "col", class: kind ?? "" }, name));
  const cell = (value, place) => element("td", { class: columns[place][1] ?? "", ...(columns[place][1] === "command" ? { title: value } : {}) }, value);
  const lines = rows.map((row) => element("tr", null, ...row.map(cell)));
  if (rows.length === 0) {
    lines.push(element("tr", { class: "none" }, element("td", { colspan: columns.length }, nothing)));
  }
  byId(id).replaceChildren(element("thead", null, element("tr", null, ...head)), element("tbody", null, ...lines));
}

function spark(values) {
  const space = "http://www.w3.org/2000/svg";
  const drawing = document.createElementNS(space, "svg");
  drawing.setAttribute("viewBox", "0 0 100 30");
  drawing.setAttribute("preserveAspectRatio", "none");
  drawing.setAttribute("aria-hidden", "true");
  const most = Math.max(...values, 1e-12);
  const at = (value, place) => `${(100 * place) / Math.max(values.length - 1, 1)} ${29 - 26 * (value / most)}`;
  const line = "M" + values.map(at).join("L");
  for (const [kind, path] of [["spark-area", line + "L100 30L0 30Z"], ["spark-line", line]]) {
    const part = document.createElementNS(space, "path");
    part.setAttribute("class", kind);
    part.setAttribute("d", path);
    drawing.append(part);
  }
  return drawing;
}

// ---- Tiles ----

function pairs() {
  return history.slice(1).map((after, place) => ({
    before: history[place],
    after,
    seconds: after.process.uptime_seconds - history[place].process.uptime_seconds,
  }));
}

// A figure with its history: its value now, and what else there is to say.
function tile(name, of, show, more) {
  const all = pairs();
  const values = all.map((pair) => of(pair) ?? 0);
  const last = all.length > 0 ? of(all[all.length - 1]) : null;
  const [, number, unit] = (last === null ? "–" : show(last)).match(/^([\d.-]*|\S+?) ?(\D*)$/);
  return element(
    "div",
    { class: "tile" },
    element("div", { class: "name" }, name),
    element("div", { class: "value" }, number, unit ? element("small", null, " " + unit) : null),
    element("div", { class: "more" }, more ?? ""),
    values.length > 1 ? spark(values) : null,
  );
}

const aSecond = (value) => short(value) + "/s";
const bytesASecond = (value) => bytes(value) + "/s";

function tiles(pair) {
  const { after } = pair;
  const shown = [];
  const { clients, database, worker, scheduler } = after;
  if (clients) {
    const latency = (kind, share) => duration(quantile(pair, kind, share));
    const tail = (kind) => `median ${latency(kind, 0.5)}, p99.9 ${latency(kind, 0.999)}`;
    const looked = clients.hits + clients.misses;
    shown.push(
      tile("Commands", (pair) => rate(pair, (status) => status.clients?.commands), aSecond,
        `${short(clients.commands)} so far, ${short(clients.errors)} errors`),
      tile("Reads, p99", (pair) => quantile(pair, "read", 0.99), duration, tail("read")),
      tile("Writes, p99", (pair) => quantile(pair, "write", 0.99), duration, tail("write")),
      tile("Clients", ({ after }) => after.clients?.connected, short,
        `${short(clients.blocked)} blocked, ${looked > 0 ? percent(clients.hits / looked) : "–"} of keys found`),
    );
  }
  if (database) {
    shown.push(
      tile("Writers stalled", (pair) => rate(pair, stalled), percent, `${duration(stalled(after))} so far`),
    );
  }
  if (!clients && after.memory_nodes.length > 0) {
    const memory = nodes(after, "memory_bytes");
    shown.push(
      tile("Memory handed out", ({ after }) => nodes(after, "allocated_bytes"), bytes, `of ${bytes(memory)}`),
      tile("Calls", (pair) => rate(pair, (status) => nodes(status, "calls")), aSecond,
        `${short(nodes(after, "refused_calls"))} refused so far`),
      tile("Jobs", (pair) => rate(pair, (status) => nodes(status, "completed_jobs")), aSecond,
        `${nodes(after, "running_jobs")} running, ${nodes(after, "queued_jobs")} waiting, ${short(nodes(after, "failed_jobs"))} failed`),
      tile("Sessions", ({ after }) => nodes(after, "sessions"), short, `${short(nodes(after, "lapsed_sessions"))} lapsed so far`),
    );
  }
  if (worker) {
    shown.push(
      tile("Attempts", (pair) => rate(pair, (status) => status.worker?.completed), aSecond,
        `${short(worker.completed)} done, ${short(worker.failed)} failed`),
      tile("Read", (pair) => rate(pair, (status) => status.worker?.read_bytes), bytesASecond, `${bytes(worker.read_bytes)} so far`),
      tile("Written", (pair) => rate(pair, (status) => status.worker?.written_bytes), bytesASecond, `${bytes(worker.written_bytes)} so far`),
    );
  }
  if (scheduler) {
    const term = scheduler.term === null ? "stands by" : `schedules in term ${scheduler.term}`;
    shown.push(tile("Elected", ({ after }) => (after.scheduler?.term === null ? 0 : 1), (is) => (is ? "yes" : "no"), term));
  }
  shown.push(
    tile("Processor", (pair) => rate(pair, (status) => status.process.cpu_seconds), (cores) => digits(cores) + " cores",
      `${bytes(after.process.resident_bytes)} resident`),
  );
  byId("tiles").replaceChildren(...shown);
}

// ---- Topology ----

function place(title, lines, part, isBad) {
  return element("div", { class: isBad ? "place bad" : "place" }, element("h3", null, title), part ?? null,
    ...lines.map((line) => element("p", null, line)));
}

function wire(there, back, note) {
  const way = (kind, value) => element("div", { class: value > 0 ? `${kind} busy` : kind }, element("b", null, bytesASecond(value)));
  return element("div", { class: "wire" }, way("there", there), note ? element("span", null, note) : null, way("back", back));
}

function topology(pair) {
  const { after } = pair;
  const { clients, database, tree } = after;
  byId("topology-card").hidden = !database && !tree;
  if (!database && !tree) return;
  const parts = [];
  if (clients) {
    parts.push(
      place("Clients", [`${short(clients.connected)} connected`, `${aSecond(rate(pair, (status) => status.clients?.commands))} commands`]),
      wire(rate(pair, (status) => status.clients?.received_bytes), rate(pair, (status) => status.clients?.sent_bytes)),
    );
  }
  const computeNode = tree ? place("Compute node", [
    `shared tree ${tree.name}, ${short(tree.keys)} keys`,
    `${bytes(tree.live_bytes)} of ${bytes(tree.used_bytes)} in use`,
    `${bytes(tree.cached_bytes)} of inner nodes remembered`,
    ...(tree.unfinished > 0 ? [`${short(tree.unfinished)} batches wait for memory`] : []),
  ], null, tree.unfinished > 0) : place("Compute node", [
      `${counted(database.shards, "shard")}, ${bytes(database.memtable_bytes)} in memtables`,
      `${bytes(database.cached_index_bytes)} of cached indexes`,
      `durability ${database.durability}`,
    ], null, database.failed_shards > 0);
  parts.push(
    computeNode,
    wire(rate(pair, (status) => fabric(status, "written_bytes")), rate(pair, (status) => fabric(status, "read_bytes")),
      `${aSecond(rate(pair, (status) => fabric(status, "round_trips")))} round trips`),
  );
  const held = (node) => place(`Memory node ${node.node}`, [`${bytes(node.allocated_bytes)} of ${bytes(node.memory_bytes)} handed out`],
    bar([["", node.allocated_bytes]], node.memory_bytes));
  const reached = after.memory_nodes.map(held);
  reached.push(...(after.lost_nodes ?? []).map((node) => place(`Memory node ${node.node}`, [node.cause], null, true)));
  parts.push(element("div", { class: "stack" }, ...reached));
  if (database?.storage) {
    const { objects } = database;
    parts.push(
      wire(rate(pair, (status) => status.database?.objects.written_bytes), rate(pair, (status) => status.database?.objects.read_bytes),
        `${aSecond(rate(pair, (status) => status.database?.objects.syncs))} syncs`),
      place("Storage", [database.storage, `${short(objects.written)} objects written, ${short(objects.read)} read`]),
    );
  }
  byId("topology").replaceChildren(...parts);
}

// ---- Parts ----

function levels({ after }) {
  const database = after.database;
  byId("levels-card").hidden = !database;
  if (!database) return;
  byId("levels-note").textContent = `${bytes(database.live_bytes)} of records in tables, ${bytes(database.dead_bytes)} dead, ` +
    `${bytes(database.pinned_bytes)} held by readers`;
  const most = Math.max(...database.levels.map((level) => level.bytes), 1);
  const deepest = database.levels.findLastIndex((level) => level.tables > 0);
  const row = (level, number) => [
    `L${number}`,
    element("span", { class: `tier ${level.tier}` }, level.tier),
    bar([[level.tier, level.bytes]], most),
    bytes(level.bytes),
    short(level.entries),
    short(level.tables),
    short(level.runs),
  ];
  const columns = [["Level"], ["Tier"], ["Size", "grow"], ["", "number"], ["Entries", "number"], ["Tables", "number"], ["Runs", "number"]];
  table("levels", columns, database.levels.slice(0, Math.max(deepest + 1, 1)).map(row), "");
}

function memoryNodes({ after }) {
  byId("nodes-card").hidden = after.memory_nodes.length === 0;
  const node = (node) => {
    const extents = node.extents.map((extents) => [extents.state, extents.bytes]);
    const legend = extents.filter(([, value]) => value > 0).map(([state, value]) => element("span", { class: state }, `${state} ${bytes(value)}`));
    return element("div", { class: "node" },
      element("div", { class: "node-head" }, element("b", null, `Node ${node.node}`),
        element("span", { class: "quiet" }, `${bytes(node.allocated_bytes)} of ${bytes(node.memory_bytes)}, up ${duration(node.uptime_seconds)}`)),
      bar(extents.filter(([state]) => state !== "free"), node.memory_bytes),
      element("div", { class: "legend" }, ...legend),
      element("div", { class: "quiet" }, `${counted(node.sessions, "session")}, ${counted(node.stores, "store")}, ${node.owned_shards} of ${counted(node.shards, "shard")} owned, ` +
        `${counted(node.running_jobs, "job")} running and ${node.queued_jobs} waiting`));
  };
  byId("nodes").replaceChildren(...after.memory_nodes.map(node));
}

const CAUSES = {
  memtables: "memtables wait for their flush",
  level0_slowdown: "level 0 slows writers down",
  level0_stop: "level 0 stops writers",
  collection: "garbage has to be collected",
  memory_full: "memory is full",
  moved_bound: "keys move to another shard",
};

function stalls(pair) {
  const database = pair.after.database;
  byId("stalls-card").hidden = !database;
  if (!database) return;
  const row = (stalls, number) => {
    const now = rate(pair, (status) => status.database?.stalls[number]?.seconds);
    return [CAUSES[stalls.cause] ?? stalls.cause, bar([["warm", now]], 1), percent(now), short(stalls.count), duration(stalls.seconds)];
  };
  table("stalls", [["Cause"], ["Now", "grow"], ["", "number"], ["Stalls", "number"], ["In all", "number"]], database.stalls.map(row), "");
}

function work(pair) {
  const database = pair.after.database;
  byId("work-card").hidden = !database;
  if (!database) return;
  const of = (field) => (status) => status.database?.[field];
  const compactions = (status) => sumOf(status.database?.compactions, (done) => done.count);
  const placed = database.compactions.filter((done) => done.count > 0).map((done) => `${short(done.count)} at ${done.place}`);
  const log = (field) => (status) => status.database?.log[field];
  const caches = database.caches.filter((cache) => cache.hits + cache.misses > 0);
  table("work", [["What"], ["Now", "number"], ["So far", "number"], ["", "rest"]], [
    ["Flushes", aSecond(rate(pair, of("flushes"))), short(database.flushes), `${database.running_flushes} running, ${database.sealed_memtables} waiting`],
    ["Compactions", aSecond(rate(pair, compactions)), short(compactions(pair.after)), placed.join(", ") || "–"],
    ["Compactions write", bytesASecond(rate(pair, of("compaction_written_bytes"))), bytes(database.compaction_written_bytes),
      `${bytes(database.compaction_read_bytes)} read`],
    ["Log", bytesASecond(rate(pair, log("bytes"))), bytes(database.log.bytes),
      database.log.groups > 0 ? `${short(database.log.records / database.log.groups)} records a shipment` : "–"],
    ...caches.map((cache) => [`Cache: ${cache.cache}`, "", short(cache.hits + cache.misses), `${percent(cache.hits / (cache.hits + cache.misses))} there`]),
  ], "");
}

function slow({ after }) {
  byId("slow-card").hidden = !after.clients;
  if (!after.clients) return;
  const at = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
  const rows = after.clients.slow.slice(0, 12).map((slow) => [at(slow.at_seconds), duration(slow.seconds), slow.client, slow.command]);
  table("slow", [["When"], ["Took", "number"], ["Client"], ["Command", "command"]], rows, "No command has taken longer than slowlog-log-slower-than.");
}

function tenants(pair) {
  const list = pair.after.tenants;
  byId("tenants-card").hidden = list.length === 0;
  const before = (name) => pair.before?.tenants.find((tenant) => tenant.name === name);
  const row = (tenant) => {
    const of = (field) => Math.max(0, tenant[field] - (before(tenant.name)?.[field] ?? tenant[field])) / Math.max(pair.seconds, 1e-9);
    return [tenant.name, bar([["", tenant.memory_bytes]], tenant.most_memory_bytes), `${bytes(tenant.memory_bytes)} of ${bytes(tenant.most_memory_bytes)}`,
      short(tenant.sessions), short(tenant.jobs), aSecond(of("calls")), percent(of("busy_seconds")), short(tenant.refused_calls), short(tenant.limited_calls), short(tenant.denied_calls)];
  };
  const numbers = ["Sessions", "Jobs", "Calls", "Busy", "Refused", "Limited", "Denied"].map((name) => [name, "number"]);
  table("tenants", [["Tenant"], ["Memory", "grow"], ["", "number"], ...numbers], list.map(row), "");
}

function head(status) {
  const { process } = status;
  byId("role").textContent = process.role;
  byId("address").textContent = process.address;
  byId("ready").textContent = process.not_ready ? `not ready: ${process.not_ready}` : "ready";
  byId("ready").classList.toggle("bad", process.not_ready !== "");
  byId("facts").textContent = `version ${process.version}, up ${duration(process.uptime_seconds)}`;
  document.title = `Forebay ${process.role} ${process.address}`;
}

function show() {
  const after = history[history.length - 1];
  const before = history[history.length - 2];
  const seconds = before ? after.process.uptime_seconds - before.process.uptime_seconds : 0;
  const pair = { before, after, seconds };
  head(after);
  for (const part of [tiles, topology, levels, memoryNodes, stalls, work, slow, tenants]) part(pair);
}

async function ask() {
  if (byId("pause").getAttribute("aria-pressed") === "true" || document.hidden) return;
  const trouble = byId("trouble");
  try {
    const answer = await fetch("/api/status", { cache: "no-store" });
    if (!answer.ok) throw new Error(await answer.text());
    const status = await answer.json();
    // Another process has replaced the previous one.
    if (history.length > 0 && status.process.started_seconds !== history[0].process.started_seconds) history.length = 0;
    history.push(status);
    history.splice(0, history.length - KEPT);
    trouble.hidden = true;
    show();
  } catch (error) {
    trouble.textContent = `No answer: ${error.message}`;
    trouble.hidden = false;
    byId("ready").textContent = "no answer";
    byId("ready").classList.add("bad");
  }
}

async function run() {
  await ask();
  setTimeout(run, history.length === 1 ? SECOND_MS : EVERY_MS);
}

byId("pause").addEventListener("click", (event) => {
  const button = event.currentTarget;
  const pressed = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", String(pressed));
  button.textContent = pressed ? "Go on" : "Pause";
});
run();
