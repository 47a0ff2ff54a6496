// kafkajs: the most used client of Node. Its packages are found through NODE_MODULES, outside the repository.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { parseArgs } from "node:util";

const require = createRequire(process.env.NODE_MODULES + "/");
const { AssignerProtocol, CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");
const VERSION = require("kafkajs/package.json").version;
const lz4 = require("lz4-napi");
const zstd = require("@bokuweb/zstd-wasm");
CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: (buffer) => lz4.decompressFrame(buffer),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
});

const VOLUME = 20_000; // records: with a handful a broker may lose most and pass
const PARTITIONS = 12;
const NEEDS_STAGE = ["restart", "retention"];
const T0 = 1_700_000_000_000;
const ANY_TIME = [{ name: "message.timestamp.before.max.ms", value: "9223372036854775807" }, { name: "retention.ms", value: "-1" }];
const NULLS = [[null, "no key"], ["tombstone", null], [null, null], ["", "empty key"], ["empty value", ""]];
const { values: options } = parseArgs({ options: { bootstrap: { type: "string" }, only: { type: "string", multiple: true } } });
const client = (broker, retry) => new Kafka({ clientId: "compat-kafkajs", brokers: [broker], logLevel: logLevel.NOTHING, retry });
const kafka = client(options.bootstrap, { retries: 4 });
const admin = kafka.admin();

const fresh = (prefix) => `compat-${prefix}-${randomUUID().slice(0, 10)}`;
const numbers = (count) => Array.from({ length: count }, (_, i) => i);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const text = (buffer) => (buffer === null ? null : buffer.toString());

async function until(what, ready, seconds = 60) {
  for (const end = Date.now() + seconds * 1000; !(await ready()); await sleep(50))
    if (Date.now() > end) throw new Error(`waited ${seconds} s for ${what}`);
}

async function newTopic(prefix, numPartitions = 1, configEntries = []) {
  const topic = fresh(prefix);
  await admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions, replicationFactor: 1, configEntries }] });
  return topic;
}

async function produce(topic, messages, { acks = -1, compression = CompressionTypes.None, per = 1000, from = kafka, ...config } = {}) {
  const producer = from.producer({ allowAutoTopicCreation: false, ...config });
  const answers = [];
  await producer.connect();
  try {
    for (let at = 0; at < messages.length; at += per)
      answers.push(...((await producer.send({ topic, messages: messages.slice(at, at + per), acks, compression })) ?? []));
    return answers;
  } finally {
    await producer.disconnect();
  }
}

/** A member of a group that collects what it is given. */
async function member(topic, groupId, config = {}, options = {}) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 300, sessionTimeout: 10000, rebalanceTimeout: 10000, ...config });
  const self = { consumer, seen: [], there: new Map(), owned: 0, joins: 0, leave: () => consumer.disconnect() };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    self.joins += 1;
    self.owned = Object.values(payload.memberAssignment).flat().length;
  });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({ autoCommit: false, ...options, eachMessage: async ({ partition, message }) => {
    const read = { partition, ...message }, place = `${partition} ${message.offset}`;
    self.seen.push(read);
    if (!self.there.has(place)) self.there.set(place, read);
  } });
  return self;
}

/** What is in a topic. A reader that loses its session begins anew, for it commits nothing: what it reads twice is there once. */
async function readTopic(topic, count) {
  const reader = await member(topic, fresh("reader"));
  try {
    await until(`${count} records`, () => reader.there.size >= count);
    return [...reader.there.values()];
  } finally {
    await reader.leave();
  }
}

const numbered = (name, count = VOLUME / 2) => numbers(count).map((i) => ({ value: `${name} ${i}` }));

/** Each producer's numbered values are all there, once, and within a partition in the order in which they were sent. */
function complete(got, sent) {
  const seen = {}, last = {}, offsets = new Map();
  for (const { partition, offset, value } of got) {
    const [name, number] = text(value).split(" ");
    const place = `${name} in ${partition}`;
    const both = offsets.has(text(value)) ? ` (at offset ${offset}, before at ${offsets.get(text(value))})` : "";
    assert.ok(Number(number) > (last[place] ?? -1), `${place}: ${number} behind ${last[place]}${both}`);
    last[place] = Number(number);
    offsets.set(text(value), offset);
    (seen[name] ??= new Set()).add(number);
  }
  for (const [name, count] of Object.entries(sent)) assert.equal(seen[name]?.size, count, `records of ${name}`);
}

/** Have the runner do something: restart the broker, or tell how many answers were lost. */
const control = (asked) => new Promise((resolve, reject) => {
  const [host, port] = process.env.COMPAT_CONTROL.split(":");
  const socket = connect(Number(port), host, () => socket.write(`${asked}\n`));
  socket.on("data", (told) => { resolve(told.toString().trim()); socket.end(); }).on("error", reject);
});

async function produceConsume() {
  const topic = await newTopic("basic", PARTITIONS);
  const sent = numbers(VOLUME).map((i) => ({ key: `key-${i % 50}`, value: `${i}` }));
  await produce(topic, sent);
  const got = await readTopic(topic, VOLUME);
  for (const key of new Set(sent.map((m) => m.key)))
    assert.deepEqual(got.filter((m) => text(m.key) === key).map((m) => text(m.value)), sent.filter((m) => m.key === key).map((m) => m.value));
  return `${new Set(got.map((m) => m.partition)).size} partitions`;
}

async function headers() {
  const topic = await newTopic("headers");
  const binary = Buffer.from(numbers(256));
  await produce(topic, [{ value: "x", headers: { trace: ["one", "two"], empty: "", binary } }]);
  const [{ headers: got }] = await readTopic(topic, 1);
  assert.deepEqual(got.trace.map(text), ["one", "two"]);
  assert.equal(text(got.empty), "");
  assert.deepEqual(got.binary, binary);
}

async function nulls() {
  const topic = await newTopic("nulls");
  await produce(topic, NULLS.map(([key, value]) => ({ key, value })));
  assert.deepEqual((await readTopic(topic, 5)).map((m) => [text(m.key), text(m.value)]), NULLS);
}

const codec = (name, type) => async () => {
  const topic = await newTopic(name);
  const values = numbers(VOLUME).map((i) => `${i}` + " a line that repeats itself".repeat(8));
  await produce(topic, values.map((value) => ({ value })), { compression: type });
  assert.deepEqual((await readTopic(topic, VOLUME)).map((m) => text(m.value)), values);
};

async function timestamps() {
  const topic = await newTopic("timestamps", 1, ANY_TIME);
  await produce(topic, numbers(10).map((i) => ({ value: "x", timestamp: `${T0 + i}` })));
  assert.deepEqual((await readTopic(topic, 10)).map((m) => Number(m.timestamp)), numbers(10).map((i) => T0 + i));
}

async function largeMessage() {
  const topic = await newTopic("large");
  const value = Buffer.alloc(900_000, "0123456789");
  await produce(topic, [{ value }]);
  assert.ok((await readTopic(topic, 1))[0].value.equals(value));
}

const acks = (level) => async () => {
  const topic = await newTopic(`acks${level}`, PARTITIONS);
  await sleep(2000); // with acks=0 nobody tells that a partition has no leader yet
  const half = VOLUME / 2;
  const sent = await Promise.all([
    produce(topic, numbered("big"), { acks: level }),
    ...numbers(4).map((i) => produce(topic, numbered(`single${i}`, half / 4), { acks: level, per: 1 })),
  ]);
  const got = await readTopic(topic, VOLUME);
  complete(got, { big: half, ...Object.fromEntries(numbers(4).map((i) => [`single${i}`, half / 4])) });
  const singles = sent.slice(1).flat().map((row) => `${row.partition} ${row.baseOffset}`);
  if (level !== 0) assert.equal(new Set(singles).size, half, "offsets told");
};

async function idempotent() {
  const topic = await newTopic("idempotent");
  await produce(topic, numbers(VOLUME).map((i) => ({ value: `${i}` })), { idempotent: true, maxInFlightRequests: 1, per: 20 });
  assert.deepEqual((await readTopic(topic, VOLUME)).map((m) => [text(m.value), m.offset]), numbers(VOLUME).map((i) => [`${i}`, `${i}`]));
}

async function restart() {
  const [topic, groupId, messages] = [await newTopic("restart", PARTITIONS), fresh("group"), numbered("restart")];
  await produce(topic, messages.slice(0, 5000));
  const first = await member(topic, groupId);
  await until("5,000 records", () => first.seen.length >= 5000);
  await first.leave();
  const committed = (await admin.fetchTopicOffsets(topic)).map(({ partition, high }) => ({ partition, offset: high }));
  await admin.setOffsets({ groupId, topic, partitions: committed });
  await control("restart");
  const from = client(options.bootstrap, { retries: 30, initialRetryTime: 20, maxRetryTime: 200 });
  await produce(topic, messages.slice(5000), { from });
  const told = async () => (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions;
  const order = (rows) => rows.map(({ partition, offset }) => [partition, offset]).sort(([a], [b]) => a - b);
  assert.deepEqual(order(await told()), order(committed), "committed offsets after the restart");
  // A producer that is not idempotent may send twice what was not acknowledged when the broker ended.
  const distinct = (some) => new Set(some.seen.map((m) => text(m.value)));
  const again = await member(topic, groupId);
  await until("the rest", () => distinct(again).size >= VOLUME / 2 - 5000);
  await again.leave();
  assert.deepEqual(distinct(again), new Set(messages.slice(5000).map((m) => m.value)), "what the group reads after the restart");
  const reader = await member(topic, fresh("reader"));
  await until("every record", () => distinct(reader).size === VOLUME / 2);
  await reader.leave();
}

async function groupEager() {
  const [topic, group] = [await newTopic("group", 4), fresh("group")];
  const first = await member(topic, group);
  await until("the first member to own everything", () => first.owned === 4);
  const second = await member(topic, group);
  await until("both to own two partitions", () => first.owned === 2 && second.owned === 2);
  await produce(topic, numbers(VOLUME).map((i) => ({ key: `${i}`, value: `${i}` })));
  await until("all records", () => first.seen.length + second.seen.length >= VOLUME);
  const values = [...first.seen, ...second.seen].map((m) => Number(m.value)).sort((a, b) => a - b);
  assert.deepEqual(values, numbers(VOLUME));
  await second.leave();
  await until("the first member to own everything again", () => first.owned === 4);
  await first.leave();
  return "4, then 2 + 2, then 4";
}

async function commitResume() {
  const [topic, groupId] = [await newTopic("commit"), fresh("group")];
  await produce(topic, numbers(20).map((i) => ({ value: `${i}` })));
  const first = await member(topic, groupId);
  await until("ten records", () => first.seen.length >= 10);
  await first.consumer.commitOffsets([{ topic, partition: 0, offset: "10", metadata: "half way" }]);
  await first.leave();
  const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] });
  assert.deepEqual([partitions[0].offset, partitions[0].metadata], ["10", "half way"]);
  const second = await member(topic, groupId);
  await until("ten more records", () => second.seen.length >= 10);
  await second.leave();
  assert.deepEqual(second.seen.map((m) => Number(m.offset)), numbers(10).map((i) => i + 10));
}

async function seekEnds() {
  const topic = await newTopic("seek");
  await produce(topic, numbers(10).map((i) => ({ value: `${i}` })));
  const [ends] = await admin.fetchTopicOffsets(topic);
  assert.deepEqual([ends.low, ends.high], ["0", "10"]);
  const reader = await member(topic, fresh("group"));
  await until("ten records", () => reader.seen.length >= 10);
  reader.consumer.seek({ topic, partition: 0, offset: "5" });
  await until("records after the seek", () => reader.seen.length >= 15);
  await reader.leave();
  assert.deepEqual(reader.seen.map((m) => Number(m.offset)), [...numbers(10), 5, 6, 7, 8, 9]);
}

async function seekTimestamp() {
  const topic = await newTopic("times", 1, ANY_TIME);
  for (const i of numbers(10)) await produce(topic, [{ value: "x", timestamp: `${T0 + 1000 * i}` }]);
  for (const [after, expected] of [[0, "0"], [2500, "3"], [9000, "9"], [99000, "10"]])
    assert.equal((await admin.fetchTopicOffsetsByTimestamp(topic, T0 + after))[0].offset, expected);
}

async function topics() {
  const topic = await newTopic("topics", 3);
  assert.ok((await admin.listTopics()).includes(topic));
  assert.equal((await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length, 3);
  await admin.deleteTopics({ topics: [topic] });
  await until("the topic to be gone", async () => !(await admin.listTopics()).includes(topic));
}

async function partitions() {
  const topic = await newTopic("partitions", 2);
  await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] });
  await until("five partitions", async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length === 5);
}

async function setting(topic, name) {
  const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] });
  return resources[0].configEntries.find((entry) => entry.configName === name).configValue;
}

async function configsDescribe() {
  const topic = await newTopic("configs", 1, [{ name: "retention.ms", value: "12345678" }]);
  assert.equal(await setting(topic, "retention.ms"), "12345678");
  assert.equal(await setting(topic, "cleanup.policy"), "delete");
}

async function configsAlter() {
  const topic = await newTopic("alter");
  const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: "retention.ms", value: "7654321" }] }];
  await admin.alterConfigs({ validateOnly: false, resources });
  await until("the new value", async () => (await setting(topic, "retention.ms")) === "7654321");
}

async function groups() {
  const [topic, groupId] = [await newTopic("groups"), fresh("group")];
  const only = await member(topic, groupId);
  await until("the assignment", () => only.owned === 1);
  assert.ok((await admin.listGroups()).groups.some((group) => group.groupId === groupId));
  const [described] = (await admin.describeGroups([groupId])).groups;
  assert.deepEqual([described.state, described.members.length], ["Stable", 1]);
  const decoded = AssignerProtocol.MemberAssignment.decode(described.members[0].memberAssignment);
  assert.deepEqual(decoded.assignment, { [topic]: [0] });
  await only.leave();
}

async function groupsDelete() {
  const [topic, groupId] = [await newTopic("groups"), fresh("group")];
  await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: "7" }] });
  assert.equal((await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions[0].offset, "7");
  await admin.resetOffsets({ groupId, topic, earliest: true });
  assert.equal((await admin.fetchOffsets({ groupId, topics: [topic], resolveOffsets: true }))[0].partitions[0].offset, "0");
  await admin.deleteGroups([groupId]);
  assert.ok(!(await admin.listGroups()).groups.some((group) => group.groupId === groupId));
}

async function retention() {
  const small = { name: "segment.bytes", value: "1048576" };
  const sized = await newTopic("size", 1, [small, { name: "retention.bytes", value: "1048576" }]);
  const aged = await newTopic("age", 1, [{ name: "retention.ms", value: "3000" }, { name: "segment.ms", value: "1000" }]);
  const kept = await newTopic("kept", 1, [small]);
  for (const topic of [sized, aged, kept]) await produce(topic, numbers(8000).map(() => ({ value: "x".repeat(500) })), { per: 200 });
  const first = async (topic) => Number((await admin.fetchTopicOffsets(topic))[0].low);
  await until("what is too old and too much to be gone", async () => {
    await produce(aged, [{ value: "one more" }]); // what is written last is never too old
    await sleep(500);
    return (await first(aged)) >= 8000 && (await first(sized)) > 0;
  });
  assert.deepEqual([await first(kept), (await first(sized)) <= 8000 - 1500], [0, true]);
}

async function deleteRecords() {
  const topic = await newTopic("delete-records");
  for (const i of numbers(5)) await produce(topic, [{ value: `${i}` }]);
  assert.equal((await admin.fetchTopicOffsets(topic))[0].low, "0"); // also makes kafkajs learn the leader
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "2" }] });
  assert.equal((await admin.fetchTopicOffsets(topic))[0].low, "2");
  assert.equal((await readTopic(topic, 3))[0].offset, "2");
}

async function cluster() {
  const described = await admin.describeCluster();
  assert.ok(described.brokers.length >= 1 && described.clusterId);
  return `cluster ${described.clusterId}`;
}

async function errors() {
  const topic = await newTopic("errors", 2);
  const type = (promise) => promise.then(() => "none", (error) => error.type ?? error.cause?.type ?? error.name);
  assert.equal(await admin.createTopics({ topics: [{ topic }] }), false);
  assert.equal(await type(admin.deleteTopics({ topics: [fresh("none")] })), "UNKNOWN_TOPIC_OR_PARTITION");
  assert.equal(await type(admin.createPartitions({ topicPartitions: [{ topic, count: 1 }] })), "INVALID_PARTITIONS");
}

const CHECKS = {
  produce_consume: produceConsume, headers, nulls,
  codec_none: codec("none", CompressionTypes.None), codec_gzip: codec("gzip", CompressionTypes.GZIP),
  codec_snappy: codec("snappy", CompressionTypes.Snappy), codec_lz4: codec("lz4", CompressionTypes.LZ4),
  codec_zstd: codec("zstd", CompressionTypes.ZSTD),
  timestamps, large_message: largeMessage, acks_0: acks(0), acks_1: acks(1), acks_all: acks(-1), idempotent,
  restart,
  group_eager: groupEager, commit_resume: commitResume, seek_ends: seekEnds, seek_timestamp: seekTimestamp,
  topics, partitions, configs_describe: configsDescribe, configs_alter: configsAlter, groups, groups_delete: groupsDelete, retention,
  delete_records: deleteRecords, cluster, errors,
};

async function bounded(check) {
  const late = sleep(150_000).then(() => { throw new Error("no end after 150 s"); });
  late.catch(() => {});
  return Promise.race([check(), late]);
}

await zstd.init();
await admin.connect();
for (const [check, body] of Object.entries(CHECKS)) {
  if (options.only && !options.only.includes(check)) continue;
  if (!process.env.COMPAT_CONTROL && NEEDS_STAGE.includes(check)) continue;
  const outcome = await bounded(body).then((detail) => [true, detail ?? ""], (error) => [false, `${error.name}: ${error.message}`.slice(0, 500)]);
  console.log(JSON.stringify({ client: "kafkajs", version: VERSION, check, ok: outcome[0], detail: outcome[1] }));
}
process.exit(0); // a consumer that hangs must not keep the run
