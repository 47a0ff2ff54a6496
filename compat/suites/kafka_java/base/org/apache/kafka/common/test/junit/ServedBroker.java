package org.apache.kafka.common.test.junit;

import static org.mockito.ArgumentMatchers.any;
import static org.mockito.Mockito.doReturn;
import static org.mockito.Mockito.mock;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import kafka.network.SocketServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TopicListing;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.MetadataCache;
import org.mockito.invocation.InvocationOnMock;

/**
 * What tests know of a broker in their own process that an application can know, too: its settings, its port, and what it tells of
 * topics. All else is an error that RunTests takes for no failure.
 */
final class ServedBroker {
    private final ServedCluster cluster;
    private final int id;

    private ServedBroker(ServedCluster cluster, int id) {
        this.cluster = cluster;
        this.id = id;
    }

    static KafkaBroker of(ServedCluster cluster, int id) {
        ServedBroker broker = new ServedBroker(cluster, id);
        return proxy(KafkaBroker.class, (proxy, method, arguments) -> switch (method.getName()) {
            case "config" -> broker.config();
            case "groupCoordinator" -> groupCoordinator();
            case "metadataCache" -> broker.metadataCache();
            case "socketServer" -> broker.socketServer();
            case "boundPort" -> broker.port();
            case "clusterId" -> cluster.clusterId();
            case "isShutdown" -> cluster.isDown(id);
            case "shutdown" -> {
                cluster.shutdownBroker(id);
                yield null;
            }
            case "awaitShutdown" -> null;
            case "startup" -> {
                cluster.startBroker(id);
                yield null;
            }
            case "hashCode" -> id;
            case "equals" -> proxy == arguments[0];
            case "toString" -> "broker " + id;
            default -> throw new UnsupportedOperationException(method.getName() + " " + ServedCluster.INSIDES);
        });
    }

    /** Of a controller tests know topics' ids. */
    static ControllerServer controller(ServedCluster cluster) {
        ControllerServer server = mock(ControllerServer.class, ServedBroker::refused);
        doReturn(proxy(Controller.class, (proxy, method, arguments) -> switch (method.getName()) {
            case "findAllTopicIds" -> CompletableFuture.completedFuture(
                cluster.asked(admin -> admin.listTopics().namesToListings()).values().stream()
                    .collect(Collectors.toMap(TopicListing::name, TopicListing::topicId)));
            default -> throw new UnsupportedOperationException(method.getName() + " " + ServedCluster.INSIDES);
        })).when(server).controller();
        return server;
    }

    private static Object refused(InvocationOnMock call) {
        throw new UnsupportedOperationException(call.getMethod().getName() + " " + ServedCluster.INSIDES);
    }

    private static <T> T proxy(Class<T> what, InvocationHandler handler) {
        return what.cast(Proxy.newProxyInstance(what.getClassLoader(), new Class<?>[] {what}, handler));
    }

    private KafkaConfig config() {
        Properties given = new Properties();
        given.putAll(cluster.config().serverProperties());
        given.putAll(cluster.config().perServerOverrideProperties().getOrDefault(id, java.util.Map.of()));
        given.put("node.id", String.valueOf(id));
        given.put("process.roles", "broker");
        given.put("controller.quorum.bootstrap.servers", "localhost:9093");
        given.put("controller.listener.names", "CONTROLLER");
        given.put("listeners", "PLAINTEXT://localhost:0");
        return KafkaConfig.fromProps(given);
    }

    private int port() {
        return cluster.nodes().stream().filter(each -> each.id() == id).map(Node::port).findFirst().orElseThrow();
    }

    private SocketServer socketServer() {
        SocketServer server = mock(SocketServer.class, ServedBroker::refused);
        doReturn(port()).when(server).boundPort(any());
        return server;
    }

    private static GroupCoordinator groupCoordinator() {
        return proxy(GroupCoordinator.class, (proxy, method, arguments) -> {
            if (method.getName().equals("groupMetadataTopicConfigs"))
                return new Properties();
            throw new UnsupportedOperationException(method.getName() + " " + ServedCluster.INSIDES);
        });
    }

    private MetadataCache metadataCache() {
        return proxy(MetadataCache.class, (proxy, method, arguments) -> switch (method.getName()) {
            case "contains" -> arguments[0] instanceof String topic && topic(topic).isPresent();
            case "numPartitions" -> topic((String) arguments[0]).map(each -> each.partitions().size());
            case "getTopicId" -> topic((String) arguments[0]).map(TopicDescription::topicId).orElse(Uuid.ZERO_UUID);
            case "getLeaderAndIsr" -> topic((String) arguments[0]).flatMap(each -> leader(each, (int) arguments[1]));
            case "getAliveBrokerNodes", "getBrokerNodes" -> cluster.nodes();
            case "hasAliveBroker" -> cluster.nodes().stream().anyMatch(each -> each.id() == (int) arguments[0]);
            default -> throw new UnsupportedOperationException(method.getName() + " " + ServedCluster.INSIDES);
        });
    }

    private Optional<TopicDescription> topic(String name) {
        try {
            return Optional.of(cluster.asked(admin -> admin.describeTopics(List.of(name)).topicNameValues().get(name)));
        } catch (UnknownTopicOrPartitionException error) {
            return Optional.empty();
        }
    }

    private static Optional<LeaderAndIsr> leader(TopicDescription topic, int partition) {
        return topic.partitions().stream()
            .filter(each -> each.partition() == partition)
            .map(TopicPartitionInfo::leader)
            .filter(leader -> leader != null && leader.id() >= 0)
            .map(leader -> new LeaderAndIsr(leader.id(), List.of(leader.id())))
            .findFirst();
    }
}
