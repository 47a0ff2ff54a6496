// Asks one version of Pulsar's Java client and admin client everything: JavaAges SERVICE_URL ADMIN_URL PREFIX
// One line of JSON for each step, as python_ages.py has them. It keeps to what Pulsar 2.8 has, so that one source
// serves all versions.

import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import org.apache.pulsar.client.admin.*;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.transaction.Transaction;

public class JavaAges {
    static final int BATCHED = 100, SINGLE = 10, KEYS = 5, SECONDS = 30;
    static PulsarClient client;
    static PulsarAdmin admin;
    static String prefix;

    interface Step { void run() throws Exception; }

    public static class Thing {
        public String name;
        public int size;
    }

    static String topic(String name) { return "persistent://public/default/" + prefix + "-" + name; }

    static void holds(boolean so, Object found) {
        if (!so) throw new IllegalStateException("found " + found);
    }

    static byte[] text(int number) { return Integer.toString(number).getBytes(StandardCharsets.UTF_8); }

    static int number(Message<byte[]> message) {
        return Integer.parseInt(new String(message.getData(), StandardCharsets.UTF_8));
    }

    static String write(String name, int count, boolean batching, BatcherBuilder builder) throws Exception {
        ProducerBuilder<byte[]> made = client.newProducer().topic(topic(name)).enableBatching(batching);
        if (batching) made.batcherBuilder(builder);
        try (Producer<byte[]> producer = made.create()) {
            for (int n = 0; n < count; n++) producer.newMessage().key("k" + n % KEYS).value(text(n)).sendAsync();
            producer.flush();
        }
        return topic(name);
    }

    static ConsumerBuilder<byte[]> consumer(String topic, SubscriptionType type) {
        return client.newConsumer().topic(topic).subscriptionName("s").subscriptionType(type)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    static Message<byte[]> next(Consumer<byte[]> consumer) throws Exception {
        Message<byte[]> message = consumer.receive(SECONDS, TimeUnit.SECONDS);
        holds(message != null, "nothing more");
        return message;
    }

    static void takes(Consumer<byte[]> consumer, int from, int to) throws Exception {
        for (int n = from; n < to; n++) {
            Message<byte[]> message = next(consumer);
            holds(number(message) == n, number(message) + " where " + n + " is due");
            consumer.acknowledge(message);
        }
    }

    /** Clients of today leave what is small as it is, so what goes alone is large. */
    static String valueOf(int n) { return n + ".".repeat(n < BATCHED ? 200 : 5000); }

    static void produce(String codec) throws Exception {
        String topic = topic("produce_" + codec);
        for (boolean batching : new boolean[] {true, false}) {
            int first = batching ? 0 : BATCHED, count = batching ? BATCHED : SINGLE;
            ProducerBuilder<byte[]> made = client.newProducer().topic(topic).producerName("ages-" + codec)
                    .compressionType(CompressionType.valueOf(codec.toUpperCase())).enableBatching(batching)
                    .batchingMaxPublishDelay(1, TimeUnit.SECONDS);
            if (!batching) made.initialSequenceId(first - 1L);
            try (Producer<byte[]> producer = made.create()) {
                for (int n = first; n < first + count; n++)
                    producer.newMessage().key("k" + n % KEYS).value(valueOf(n).getBytes(StandardCharsets.UTF_8))
                            .property("number", "" + n).eventTime(1000 + n).sendAsync();
                producer.flush();
            }
        }
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            for (int n = 0; n < BATCHED + SINGLE; n++) {
                Message<byte[]> message = next(consumer);
                holds(new String(message.getData(), StandardCharsets.UTF_8).equals(valueOf(n)), n);
                holds(message.getKey().equals("k" + n % KEYS), message.getKey());
                holds(message.getProperty("number").equals("" + n), message.getProperties());
                holds(message.getEventTime() == 1000 + n, message.getEventTime());
                consumer.acknowledge(message);
            }
            holds(consumer.receive(500, TimeUnit.MILLISECONDS) == null, "one too many");
        }
    }

    static void exclusive() throws Exception {
        String topic = write("exclusive", 30, true, BatcherBuilder.DEFAULT);
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            try {
                consumer(topic, SubscriptionType.Exclusive).subscribe();
                holds(false, "two at once");
            } catch (PulsarClientException.ConsumerBusyException busy) { /* as it should be */ }
            takes(consumer, 0, 30);
        }
    }

    static void failover() throws Exception {
        String topic = write("failover", 30, false, null);
        Consumer<byte[]> first = consumer(topic, SubscriptionType.Failover).consumerName("a").subscribe();
        Consumer<byte[]> second = consumer(topic, SubscriptionType.Failover).consumerName("b").subscribe();
        // Which of them is the active one is the broker's to say.
        Message<byte[]> message = first.receive(2, TimeUnit.SECONDS);
        Consumer<byte[]> active = message == null ? second : first, other = message == null ? first : second;
        if (message != null) active.acknowledge(message);
        takes(active, message == null ? 0 : 1, 10);
        active.close();
        takes(other, 10, 30);
        other.close();
    }

    static void divided(String name, SubscriptionType type) throws Exception {
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int n = 0; n < 3; n++) consumers.add(consumer(topic(name), type).receiverQueueSize(5).subscribe());
        write(name, 60, type == SubscriptionType.Key_Shared, BatcherBuilder.KEY_BASED);
        Map<String, Set<Integer>> where = new TreeMap<>();
        Map<String, List<Integer>> order = new TreeMap<>();
        int found = 0;
        for (long end = System.nanoTime() + SECONDS * 1_000_000_000L; found < 60 && System.nanoTime() < end; )
            for (int n = 0; n < 3; n++) {
                Message<byte[]> message = consumers.get(n).receive(50, TimeUnit.MILLISECONDS);
                if (message == null) continue;
                consumers.get(n).acknowledge(message);
                where.computeIfAbsent(message.getKey(), key -> new TreeSet<>()).add(n);
                order.computeIfAbsent(message.getKey(), key -> new ArrayList<>()).add(number(message));
                found++;
            }
        for (Consumer<byte[]> each : consumers) each.close();
        holds(found == 60, found);
        Set<Integer> all = new TreeSet<>();
        for (Map.Entry<String, List<Integer>> each : order.entrySet()) {
            all.addAll(each.getValue());
            List<Integer> sorted = new ArrayList<>(each.getValue());
            Collections.sort(sorted);
            holds(type == SubscriptionType.Shared || sorted.equals(each.getValue()), order);
            holds(type == SubscriptionType.Shared || where.get(each.getKey()).size() == 1, where);
        }
        holds(all.size() == 60, all);
    }

    static void reader() throws Exception {
        String topic = write("reader", 30, true, BatcherBuilder.DEFAULT);
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
            int n = 0;
            while (reader.hasMessageAvailable()) holds(number(reader.readNext(SECONDS, TimeUnit.SECONDS)) == n++, n);
            holds(n == 30, n);
        }
    }

    static void seekId() throws Exception {
        String topic = write("seek_id", 30, true, BatcherBuilder.DEFAULT);
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).startMessageIdInclusive().subscribe()) {
            List<Message<byte[]>> all = new ArrayList<>();
            for (int n = 0; n < 30; n++) all.add(next(consumer));
            consumer.seek(all.get(10).getMessageId());
            Message<byte[]> again = next(consumer);
            holds(number(again) == 10, number(again));
        }
    }

    static void seekTime() throws Exception {
        String topic = write("seek_time", 30, true, BatcherBuilder.DEFAULT);
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            takes(consumer, 0, 30);
            consumer.seek(System.currentTimeMillis() - 3_600_000);
            takes(consumer, 0, 1);
        }
    }

    static void cumulative() throws Exception {
        String topic = write("cumulative", 30, false, null);
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            for (int n = 0; n < 19; n++) next(consumer);
            consumer.acknowledgeCumulative(next(consumer));
        }
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            takes(consumer, 20, 30);
        }
    }

    static void deadLetters() throws Exception {
        DeadLetterPolicy policy = DeadLetterPolicy.builder().maxRedeliverCount(2).deadLetterTopic(topic("letters")).build();
        try (Consumer<byte[]> letters = consumer(topic("letters"), SubscriptionType.Shared).subscribe();
                Consumer<byte[]> consumer = consumer(topic("dead"), SubscriptionType.Shared).deadLetterPolicy(policy)
                        .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS).subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic("dead")).create()) {
            producer.send(text(7));
            for (int n = 0; n < 3; n++) consumer.negativeAcknowledge(next(consumer));
            consumer.receive(3, TimeUnit.SECONDS);
            holds(number(next(letters)) == 7, "another letter");
        }
    }

    static void delayed() throws Exception {
        try (Consumer<byte[]> consumer = consumer(topic("delayed"), SubscriptionType.Shared).subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic("delayed")).create()) {
            long sent = System.nanoTime();
            producer.newMessage().value(text(1)).deliverAfter(2, TimeUnit.SECONDS).send();
            next(consumer);
            holds(System.nanoTime() - sent > 1_500_000_000L, "too early");
        }
    }

    static void schema(String name, Schema<Thing> schema) throws Exception {
        try (Consumer<Thing> consumer = client.newConsumer(schema).topic(topic(name)).subscriptionName("s").subscribe();
                Consumer<GenericRecord> any = client.newConsumer(Schema.AUTO_CONSUME()).topic(topic(name)).subscriptionName("any").subscribe();
                Producer<Thing> producer = client.newProducer(schema).topic(topic(name)).create()) {
            Thing thing = new Thing();
            thing.name = "a";
            thing.size = 7;
            producer.send(thing);
            Thing found = consumer.receive(SECONDS, TimeUnit.SECONDS).getValue();
            holds(found.name.equals("a") && found.size == 7, found.name);
            holds(any.receive(SECONDS, TimeUnit.SECONDS).getValue().getField("size").toString().equals("7"), "another size");
        }
    }

    static void chunks() throws Exception {
        byte[] large = new byte[12 << 20];
        new Random(1).nextBytes(large);
        try (Consumer<byte[]> consumer = consumer(topic("chunks"), SubscriptionType.Exclusive).subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic("chunks")).enableBatching(false).enableChunking(true).create()) {
            producer.send(large);
            holds(Arrays.equals(next(consumer).getData(), large), "other bytes");
        }
    }

    static void transactions() throws Exception {
        write("txn_in", 4, false, null);
        try (Consumer<byte[]> in = consumer(topic("txn_in"), SubscriptionType.Shared).subscribe();
                Consumer<byte[]> out = consumer(topic("txn_out"), SubscriptionType.Exclusive).subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic("txn_out")).sendTimeout(0, TimeUnit.SECONDS).create()) {
            for (boolean commits : new boolean[] {false, true}) {
                Transaction txn = client.newTransaction().withTransactionTimeout(1, TimeUnit.MINUTES).build().get(SECONDS, TimeUnit.SECONDS);
                Message<byte[]> message = next(in);
                producer.newMessage(txn).value(text(commits ? 1 : 0)).send();
                in.acknowledgeAsync(message.getMessageId(), txn).get(SECONDS, TimeUnit.SECONDS);
                (commits ? txn.commit() : txn.abort()).get(SECONDS, TimeUnit.SECONDS);
            }
            takes(out, 1, 2);
            holds(out.receive(500, TimeUnit.MILLISECONDS) == null, "the aborted one");
        }
    }

    static void adminTopics() throws Exception {
        String topic = topic("admin");
        admin.topics().createNonPartitionedTopic(topic);
        admin.topics().createPartitionedTopic(topic("parts"), 3);
        holds(admin.topics().getPartitionedTopicMetadata(topic("parts")).partitions == 3, "partitions");
        admin.topics().createSubscription(topic, "later", MessageId.latest);
        write("admin", 10, false, null);
        holds(admin.topics().getList("public/default").contains(topic), "not listed");
        holds(admin.topics().getStats(topic).getSubscriptions().get("later").getMsgBacklog() == 10, "backlog");
        holds(admin.topics().getInternalStats(topic).numberOfEntries == 10, "entries");
        List<Message<byte[]>> peeked = admin.topics().peekMessages(topic, "later", 2);
        holds(peeked.size() == 2 && number(peeked.get(1)) == 1, peeked);
        admin.topics().skipMessages(topic, "later", 4);
        holds(admin.topics().getStats(topic).getSubscriptions().get("later").getMsgBacklog() == 6, "skipped");
        admin.topics().resetCursor(topic, "later", System.currentTimeMillis() - 3_600_000);
        holds(admin.topics().getStats(topic).getSubscriptions().get("later").getMsgBacklog() == 10, "reset");
        admin.topics().skipAllMessages(topic, "later");
        admin.topics().unload(topic);
        admin.topics().deleteSubscription(topic, "later");
        admin.topics().delete(topic, true);
        admin.topics().deletePartitionedTopic(topic("parts"));
    }

    static void adminNamespaces() throws Exception {
        String namespace = "public/" + prefix;
        admin.namespaces().createNamespace(namespace);
        admin.namespaces().setNamespaceMessageTTL(namespace, 3600);
        holds(admin.namespaces().getNamespaceMessageTTL(namespace) == 3600, "TTL");
        holds(admin.namespaces().getPolicies(namespace).message_ttl_in_seconds == 3600, "policies");
        holds(admin.namespaces().getNamespaces("public").contains(namespace), "not listed");
        admin.namespaces().deleteNamespace(namespace);
        holds(!admin.clusters().getClusters().isEmpty() && admin.tenants().getTenants().contains("public"), "clusters");
    }

    static Map<String, Step> steps() {
        Map<String, Step> steps = new LinkedHashMap<>();
        for (String codec : List.of("none", "lz4", "zlib", "zstd", "snappy")) steps.put("produce_" + codec, () -> produce(codec));
        steps.put("exclusive", JavaAges::exclusive);
        steps.put("shared", () -> divided("shared", SubscriptionType.Shared));
        steps.put("failover", JavaAges::failover);
        steps.put("key_shared", () -> divided("key_shared", SubscriptionType.Key_Shared));
        steps.put("reader", JavaAges::reader);
        steps.put("seek_id", JavaAges::seekId);
        steps.put("seek_time", JavaAges::seekTime);
        steps.put("cumulative", JavaAges::cumulative);
        steps.put("delayed", JavaAges::delayed);
        steps.put("avro", () -> schema("avro", Schema.AVRO(Thing.class)));
        steps.put("json", () -> schema("json", Schema.JSON(Thing.class)));
        steps.put("dead_letters", JavaAges::deadLetters);
        steps.put("chunks", JavaAges::chunks);
        steps.put("transactions", JavaAges::transactions);
        steps.put("admin_topics", JavaAges::adminTopics);
        steps.put("admin_namespaces", JavaAges::adminNamespaces);
        return steps;
    }

    public static void main(String[] arguments) throws Exception {
        prefix = arguments[2];
        client = PulsarClient.builder().serviceUrl(arguments[0]).enableTransaction(true).operationTimeout(SECONDS, TimeUnit.SECONDS).build();
        admin = PulsarAdmin.builder().serviceHttpUrl(arguments[1]).build();
        for (Map.Entry<String, Step> step : steps().entrySet()) {
            String fault = "";
            try {
                step.getValue().run();
            } catch (Throwable error) { // whatever a version does, the others are asked
                String words = error.getClass().getSimpleName() + ": " + error.getMessage();
                fault = words.substring(0, Math.min(words.length(), 300)).replaceAll("[\"\\\\\\p{Cntrl}]", " ");
            }
            System.out.printf("{\"step\": \"%s\", \"ok\": %s, \"detail\": \"%s\"}%n", step.getKey(), fault.isEmpty(), fault);
        }
        System.exit(0);
    }
}
