// kafkajs: the most used client of Node. Its packages are found through NODE_MODULES, outside the repository.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
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

const T0 = 1_700_000_000_000;
const ANY_TIME = [{ name: "message.timestamp.before.max.ms", value: "9223372036854775807" }];
const NULLS = [[null, "no key"], ["tombstone", null], [null, null], ["", "empty key"], ["empty value", ""]];
const { values: options } = parseArgs({ options: { bootstrap: { type: "string" }, only: { type: "string", multiple: true } } });
const kafka = new Kafka({ clientId: "compat-kafkajs", brokers: [options.bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 4 } });
const admin = kafka.admin();

const fresh = (prefix) => `compat-${prefix}-${randomUUID().slice(0, 10)}`;
const numbers = (count) => Array.from({ length: count }, (_, i) => i);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const text = (buffer) => (buffer === null ? null : buffer.toString());

async function until(what, ready, seconds = 30) {
  for (const end = Date.now() + seconds * 1000; !(await ready()); await sleep(50))
    if (Date.now() > end) throw new Error(`waited ${seconds} s for ${what}`);
}

async function newTopic(prefix, numPartitions = 1, configEntries = []) {
  const topic = fresh(prefix);
  await admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions, replicationFactor: 1, configEntries }] });
  return topic;
}

async function produce(topic, messages, { acks = -1, compression = CompressionTypes.None, ...config } = {}) {
  const producer = kafka.producer({ allowAutoTopicCreation: false, ...config });
  await producer.connect();
  try {
    return await producer.send({ topic, messages, acks, compression });
  } finally {
    await producer.disconnect();
  }
}

/** A member of a group that collects what it is given. */
async function member(topic, groupId, config = {}, options = {}) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 300, sessionTimeout: 10000, rebalanceTimeout: 10000, ...config });
  const self = { consumer, seen: [], owned: 0, joins: 0, leave: () => consumer.disconnect() };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    self.joins += 1;
    self.owned = Object.values(payload.memberAssignment).flat().length;
  });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({ autoCommit: false, ...options, eachMessage: async ({ partition, message }) => self.seen.push({ partition, ...message }) });
  return self;
}

async function readTopic(topic, count) {
  const reader = await member(topic, fresh("reader"));
  try {
    await until(`${count} records`, () => reader.seen.length >= count);
    return reader.seen;
  } finally {
    await reader.leave();
  }
}

async function produceConsume() {
  const topic = await newTopic("basic", 4);
  const sent = numbers(500).map((i) => ({ key: `key-${i % 10}`, value: `${i}` }));
  await produce(topic, sent);
  const got = await readTopic(topic, 500);
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
  const values = numbers(200).map((i) => `${i}` + " a line that repeats itself".repeat(8));
  await produce(topic, values.map((value) => ({ value })), { compression: type });
  assert.deepEqual((await readTopic(topic, 200)).map((m) => text(m.value)), values);
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
  const topic = await newTopic(`acks${level}`);
  const values = numbers(50).map(String);
  const [answer] = (await produce(topic, values.map((value) => ({ value })), { acks: level })) ?? [];
  if (level !== 0) assert.equal(answer.baseOffset, "0");
  assert.deepEqual((await readTopic(topic, 50)).map((m) => text(m.value)), values);
};

async function idempotent() {
  const topic = await newTopic("idempotent");
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (const i of numbers(50)) await producer.send({ topic, messages: [{ value: `${2 * i}` }, { value: `${2 * i + 1}` }] });
  await producer.disconnect();
  assert.deepEqual((await readTopic(topic, 100)).map((m) => [text(m.value), m.offset]), numbers(100).map((i) => [`${i}`, `${i}`]));
}

async function groupEager() {
  const [topic, group] = [await newTopic("group", 4), fresh("group")];
  const first = await member(topic, group);
  await until("the first member to own everything", () => first.owned === 4);
  const second = await member(topic, group);
  await until("both to own two partitions", () => first.owned === 2 && second.owned === 2);
  await produce(topic, numbers(100).map((i) => ({ key: `${i}`, value: `${i}` })));
  await until("all 100 records", () => first.seen.length + second.seen.length >= 100);
  const values = [...first.seen, ...second.seen].map((m) => Number(m.value)).sort((a, b) => a - b);
  assert.deepEqual(values, numbers(100));
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
  group_eager: groupEager, commit_resume: commitResume, seek_ends: seekEnds, seek_timestamp: seekTimestamp,
  topics, partitions, configs_describe: configsDescribe, configs_alter: configsAlter, groups, groups_delete: groupsDelete,
  delete_records: deleteRecords, cluster, errors,
};

async function bounded(check) {
  const late = sleep(75_000).then(() => { throw new Error("no end after 75 s"); });
  late.catch(() => {});
  return Promise.race([check(), late]);
}

await zstd.init();
await admin.connect();
for (const [check, body] of Object.entries(CHECKS)) {
  if (options.only && !options.only.includes(check)) continue;
  const outcome = await bounded(body).then((detail) => [true, detail ?? ""], (error) => [false, `${error.name}: ${error.message}`.slice(0, 500)]);
  console.log(JSON.stringify({ client: "kafkajs", version: VERSION, check, ok: outcome[0], detail: outcome[1] }));
}
process.exit(0); // a consumer that hangs must not keep the run
