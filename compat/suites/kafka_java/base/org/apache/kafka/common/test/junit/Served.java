package org.apache.kafka.common.test.junit;

import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** Brokers that serve from a process of their own, and what an application can know of them. */
public class Served {
    public static final String INSIDES = ServedProcess.INSIDES;
    private static final long PROPAGATED_MS = 60_000;

    private final ServedProcess process;
    private final Function<Integer, KafkaConfig> settings;

    public Served(ServedProcess process, Function<Integer, KafkaConfig> settings) {
        this.process = process;
        this.settings = settings;
    }

    public ServedProcess process() {
        return process;
    }

    /** Of one broker, as the test gave them. */
    KafkaConfig settings(int id) {
        return settings.apply(id);
    }

    /** What is allowed everything; whoever uses it closes it. */
    public Admin admin() {
        return Admin.create(new HashMap<>(process.admin()));
    }

    /** Returns what the cluster answers; an error of its is thrown as it is. */
    public <T> T asked(Function<Admin, KafkaFuture<T>> question) {
        return answered(admin(), question);
    }

    private static <T> T answered(Admin asking, Function<Admin, KafkaFuture<T>> question) {
        try (Admin admin = asking) {
            return question.apply(admin).get();
        } catch (ExecutionException error) {
            throw error.getCause() instanceof RuntimeException known ? known : new RuntimeException(error);
        } catch (InterruptedException error) {
            throw new RuntimeException(error);
        }
    }

    /** Brokers, as clients reach them. */
    public List<Node> nodes() {
        Admin client = Admin.create(new HashMap<>(process.client()));
        return answered(client, admin -> admin.describeCluster().nodes()).stream().sorted(Comparator.comparing(Node::id)).toList();
    }

    String clusterId() {
        return asked(admin -> admin.describeCluster().clusterId());
    }

    /** Makes a topic, and returns each partition's leader when all have one. */
    public Map<Integer, Integer> createTopic(NewTopic topic) {
        asked(admin -> admin.createTopics(Set.of(topic)).all());
        return leaders(topic.name());
    }

    /** Returns each partition's leader when all have one. */
    public Map<Integer, Integer> leaders(String topic) {
        long until = System.currentTimeMillis() + PROPAGATED_MS;
        while (true) {
            Map<Integer, Integer> leaders = new HashMap<>();
            boolean all = true;
            for (TopicPartitionInfo each : partitions(topic)) {
                all &= each.leader() != null && each.leader().id() >= 0;
                leaders.put(each.partition(), each.leader() == null ? -1 : each.leader().id());
            }
            if (all && !leaders.isEmpty())
                return leaders;
            if (System.currentTimeMillis() > until)
                throw new AssertionError(topic + " has not got all its leaders: " + leaders);
            pause();
        }
    }

    public void deleteTopic(String topic) {
        asked(admin -> admin.deleteTopics(Set.of(topic)).all());
        long until = System.currentTimeMillis() + PROPAGATED_MS;
        while (asked(admin -> admin.listTopics().names()).contains(topic)) {
            if (System.currentTimeMillis() > until)
                throw new AssertionError(topic + " is there still");
            pause();
        }
    }

    private List<TopicPartitionInfo> partitions(String topic) {
        try {
            return asked(admin -> admin.describeTopics(List.of(topic)).topicNameValues().get(topic)).partitions();
        } catch (UnknownTopicOrPartitionException error) {
            return List.of();
        }
    }

    static void pause() {
        try {
            Thread.sleep(20);
        } catch (InterruptedException error) {
            throw new RuntimeException(error);
        }
    }
}
