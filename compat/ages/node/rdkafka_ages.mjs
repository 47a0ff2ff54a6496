// node-rdkafka of any version.

import { createRequire } from "node:module";
import { bootstrap, key, numberOf, numbers, serve, t0, value } from "./program.mjs";

const require = createRequire(process.env.NODE_MODULES + "/");
const { AdminClient, KafkaConsumer, Producer } = require("node-rdkafka");

const PATIENT = { "metadata.broker.list": bootstrap, "topic.metadata.refresh.interval.ms": 1000 };
const WAIT_MS = 30_000;
const transactional = new Map();

/** Calls a function that takes a callback as its last argument. */
const called = (call) => new Promise((resolve, reject) => call((error, found) => (error ? reject(new Error(error.message)) : resolve(found))));

async function producerOf(settings) {
  const producer = new Producer({ ...PATIENT, dr_cb: true, "linger.ms": 20, ...settings });
  producer.told = { delivered: 0, refused: [] };
  producer.on("delivery-report", (error) => (error ? producer.told.refused.push(error) : (producer.told.delivered += 1)));
  await called((done) => producer.connect({}, done));
  producer.setPollInterval(20);
  return producer;
}

async function send(producer, topic, first, end) {
  const before = producer.told.delivered;
  for (const i of numbers(first, end))
    producer.produce(topic, 0, Buffer.from(value(i)), key(i), t0 + i, undefined, [{ n: String(i) }]);
  await called((done) => producer.flush(WAIT_MS, done));
  while (producer.told.delivered - before < end - first && !producer.told.refused.length) {
    producer.poll();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  if (producer.told.refused.length) throw new Error(producer.told.refused[0].message);
}

async function consumerOf(group, settings = {}) {
  const wanted = { "group.id": group, "enable.auto.commit": false, "allow.auto.create.topics": true, ...settings };
  const consumer = new KafkaConsumer({ ...PATIENT, ...wanted }, { "auto.offset.reset": "earliest" });
  await called((done) => consumer.connect({}, done));
  return consumer;
}

await serve({
  async create(topic) {
    const admin = AdminClient.create(PATIENT);
    await called((done) => admin.createTopic({ topic, num_partitions: 1, replication_factor: 1 }, done));
    admin.disconnect();
  },

  async produce(topic, codec, first, end, how) {
    const producer = await producerOf({ "compression.codec": codec, "enable.idempotence": how === "idempotent" });
    await send(producer, topic, Number(first), Number(end));
    await called((done) => producer.disconnect(done));
  },

  async transaction(topic, id, first, end, how) {
    if (!transactional.has(id)) {
      const made = await producerOf({ "transactional.id": id });
      await called((done) => made.initTransactions(WAIT_MS, done));
      transactional.set(id, made);
    }
    const producer = transactional.get(id);
    await called((done) => producer.beginTransaction(done));
    await send(producer, topic, Number(first), Number(end));
    await called((done) => (how === "commit" ? producer.commitTransaction(WAIT_MS, done) : producer.abortTransaction(WAIT_MS, done)));
  },

  async read(topic, group, count, isolation) {
    const member = await consumerOf(group, { "isolation.level": isolation });
    member.setDefaultConsumeTimeout(200);
    member.subscribe([topic]);
    const found = [];
    while (found.length < Number(count)) {
      // A topic that is not there yet is told as an error.
      const messages = await called((done) => member.consume(Number(count) - found.length, done)).catch(() => []);
      found.push(...messages.map((message) => numberOf(message.value)));
    }
    member.commitSync(null);
    await called((done) => member.disconnect(done));
    return { numbers: found };
  },

  async committed(topic, group) {
    const member = await consumerOf(group);
    const [found] = await called((done) => member.committed([{ topic, partition: 0 }], WAIT_MS, done));
    await called((done) => member.disconnect(done));
    return { offset: found.offset };
  },

  async time(topic, at) {
    const reader = await consumerOf("unused");
    const [found] = await called((done) => reader.offsetsForTimes([{ topic, partition: 0, offset: Number(at) }], WAIT_MS, done));
    await called((done) => reader.disconnect(done));
    return { offset: found.offset };
  },
});
