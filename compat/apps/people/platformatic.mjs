// @platformatic/kafka, at least once: a number's offset is committed when its double was acknowledged.

import { createRequire } from "node:module";

const { Consumer, MessagesStreamFallbackModes, MessagesStreamModes, Producer, stringDeserializers, stringSerializers } =
  await import(createRequire(process.env.NODE_MODULES + "/").resolve("@platformatic/kafka"));
const [bootstrap, source, target] = process.argv.slice(2);
const patient = { clientId: "doubler", bootstrapBrokers: [bootstrap], retries: 100, retryDelay: 200 };
const PER_SEND = 100;

const producer = new Producer({ ...patient, serializers: stringSerializers, acks: -1, compression: "gzip" });

/** Reads until the stream ends or breaks. */
async function serve() {
  const consumer = new Consumer({ ...patient, groupId: "platformatic", deserializers: stringDeserializers, sessionTimeout: 10_000 });
  try {
    const stream = await consumer.consume({
      autocommit: false,
      topics: [source],
      mode: MessagesStreamModes.COMMITTED,
      fallbackMode: MessagesStreamFallbackModes.EARLIEST,
      maxWaitTime: 200,
    });
    let waiting = [];
    const sent = async () => {
      const messages = waiting.map(({ value }) => ({ topic: target, value: String(2 * Number(value)).padEnd(200) }));
      await producer.send({ messages });
      const last = new Map(waiting.map((each) => [each.partition, each]));
      for (const message of last.values()) await message.commit();
      waiting = [];
    };
    for await (const message of stream) {
      waiting.push(message);
      if (waiting.length >= PER_SEND || stream.readableLength === 0) await sent();
    }
  } finally {
    await consumer.close(true).catch(() => {});
  }
}

for (;;) await serve().catch((error) => console.error(error));
