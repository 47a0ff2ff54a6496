// kafkajs of any version.

import { createRequire } from "node:module";
import { bootstrap, key, numberOf, numbers, serve, t0, value } from "./program.mjs";

const require = createRequire(process.env.NODE_MODULES + "/");
const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require("kafkajs");
const lz4 = require("lz4-napi");
const zstd = require("@bokuweb/zstd-wasm");
await zstd.init();
CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: (buffer) => lz4.decompressFrame(buffer),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
});
const TYPES = { none: "None", gzip: "GZIP", snappy: "Snappy", lz4: "LZ4", zstd: "ZSTD" };
const PER_SEND = 200;
const TOPICS = Number(require("kafkajs/package.json").version.split(".")[0]) >= 2; // fetchOffsets took one topic before

const kafka = new Kafka({ clientId: "ages", brokers: [bootstrap], logLevel: logLevel.ERROR });
const transactional = new Map();

const record = (i) => ({ partition: 0, key: key(i), value: value(i), timestamp: String(t0 + i), headers: { n: String(i) } });

async function send(producer, topic, first, end, codec = "none") {
  for (let at = first; at < end; at += PER_SEND) {
    const messages = numbers(at, Math.min(at + PER_SEND, end)).map(record);
    await producer.send({ topic, acks: -1, compression: CompressionTypes[TYPES[codec]], messages });
  }
}

async function withAdmin(asked) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await asked(admin);
  } finally {
    await admin.disconnect();
  }
}

await serve({
  create: (topic) =>
    withAdmin(async (admin) => {
      await admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 1 }] });
    }),

  async produce(topic, codec, first, end, how) {
    const producer = kafka.producer({ idempotent: how === "idempotent", maxInFlightRequests: 1 });
    await producer.connect();
    await send(producer, topic, Number(first), Number(end), codec);
    await producer.disconnect();
  },

  async transaction(topic, id, first, end, how) {
    if (!transactional.has(id)) {
      const producer = kafka.producer({ transactionalId: id, idempotent: true, maxInFlightRequests: 1 });
      await producer.connect();
      transactional.set(id, producer);
    }
    const transaction = await transactional.get(id).transaction();
    await send(transaction, topic, Number(first), Number(end));
    await (how === "commit" ? transaction.commit() : transaction.abort());
  },

  async read(topic, groupId, count, isolation) {
    const wanted = { groupId, metadataMaxAge: 1000, maxWaitTimeInMs: 200, readUncommitted: isolation === "read_uncommitted" };
    const member = kafka.consumer({ ...wanted, maxBytesPerPartition: 65_536, retry: { retries: 30 } });
    await member.connect();
    await member.subscribe({ topic, fromBeginning: true });
    const found = [];
    await new Promise((resolve, reject) => {
      member.on(member.events.CRASH, ({ payload }) => payload.restart || reject(payload.error));
      member
        .run({
          autoCommit: false,
          eachBatch: async ({ batch }) => {
            if (found.length >= Number(count)) return;
            found.push(...batch.messages.map((message) => numberOf(message.value)));
            const offset = String(Number(batch.lastOffset()) + 1);
            await member.commitOffsets([{ topic, partition: 0, offset }]);
            if (found.length >= Number(count)) resolve();
          },
        })
        .catch(reject);
    });
    await member.disconnect();
    return { numbers: found };
  },

  committed: (topic, groupId) =>
    withAdmin(async (admin) => {
      const answer = await admin.fetchOffsets(TOPICS ? { groupId, topics: [topic] } : { groupId, topic });
      const [partition] = TOPICS ? answer[0].partitions : answer;
      return { offset: Number(partition.offset) };
    }),

  time: (topic, at) =>
    withAdmin(async (admin) => ({ offset: Number((await admin.fetchTopicOffsetsByTimestamp(topic, Number(at)))[0].offset) })),
});
