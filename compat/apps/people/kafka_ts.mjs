// kafka-ts, at least once: offsets are committed when a batch was dealt with.

import { createRequire } from "node:module";

const { createKafkaClient } = createRequire(process.env.NODE_MODULES + "/")("kafka-ts");
const [bootstrap, source, target] = process.argv.slice(2);
const [host, port] = bootstrap.split(":");
const kafka = createKafkaClient({ clientId: "doubler", bootstrapServers: [{ host, port: Number(port) }] });
const producer = kafka.createProducer({});
const doubled = (value) => String(2 * Number(value)).padEnd(200);

await kafka.startConsumer({
  groupId: "kafka-ts",
  topics: [source],
  fromBeginning: true,
  onBatch: (messages) => producer.send(messages.map(({ value }) => ({ topic: target, value: doubled(value) }))),
});
