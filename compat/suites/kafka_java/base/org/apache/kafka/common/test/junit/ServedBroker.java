package org.apache.kafka.common.test.junit;

import static org.mockito.Answers.RETURNS_DEEP_STUBS;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.Mockito.doReturn;
import static org.mockito.Mockito.mock;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaApis;
import kafka.server.ReplicaManager;
import kafka.server.SharedServer;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TopicListing;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.mockito.invocation.InvocationOnMock;
import scala.Option;

/**
 * What tests know of a broker in their own process that an application can know, too: its settings, its port, and what it tells of
 * topics. All else is an error that RunTests takes for no failure.
 */
public final class ServedBroker {
    private static final int TRIES = 3;

    private final Served cluster;
    private final int id;

    private ServedBroker(Served cluster, int id) {
        this.cluster = cluster;
        this.id = id;
    }

    public static BrokerServer of(Served cluster, int id) {
        ServedBroker broker = new ServedBroker(cluster, id);
        return mock(BrokerServer.class, call -> switch (call.getMethod().getName()) {
            case "config" -> cluster.settings(id);
            case "groupCoordinator" -> groupCoordinator();
            case "metadataCache" -> broker.metadataCache();
            case "replicaManager" -> broker.replicaManager();
            case "logManager" -> broker.logManager();
            case "dataPlaneRequestProcessor" -> broker.processor();
            case "socketServer" -> broker.socketServer();
            case "boundPort" -> broker.port();
            case "clusterId" -> cluster.clusterId();
            case "authorizerPlugin" -> broker.authorizer();
            case "sharedServer" -> mock(SharedServer.class); // it has no loader that anybody would have to wait for
            case "brokerState" -> cluster.process().isDown(id) ? BrokerState.NOT_RUNNING : BrokerState.RUNNING;
            case "metrics" -> new Metrics(); // of Kafka's own classes: they count nothing
            case "isShutdown" -> cluster.process().isDown(id);
            case "shutdown" -> {
                cluster.process().endOne(id);
                yield null;
            }
            case "startup" -> {
                cluster.process().startOne(id);
                yield null;
            }
            case "awaitShutdown" -> null;
            case "toString" -> "broker " + id;
            default -> refused(call);
        });
    }

    /** Of a controller tests know topics' ids, and its ACLs. */
    public static ControllerServer controller(Served cluster) {
        ControllerServer server = mock(ControllerServer.class, ServedBroker::refused);
        doReturn(proxy(Controller.class, (proxy, method, arguments) -> switch (method.getName()) {
            case "findAllTopicIds" -> CompletableFuture.completedFuture(
                cluster.asked(admin -> admin.listTopics().namesToListings()).values().stream()
                    .collect(Collectors.toMap(TopicListing::name, TopicListing::topicId)));
            case "findTopicIds" -> CompletableFuture.completedFuture(
                cluster.asked(admin -> admin.describeTopics((Collection<String>) arguments[1]).allTopicNames()).values().stream()
                    .collect(Collectors.toMap(TopicDescription::name, each -> new ResultOrError<>(each.topicId()))));
            default -> throw new UnsupportedOperationException(method.getName() + " " + Served.INSIDES);
        })).when(server).controller();
        doReturn(new ServedBroker(cluster, 0).authorizer()).when(server).authorizerPlugin();
        doReturn(mock(KafkaRaftManager.class, RETURNS_DEEP_STUBS)).when(server).raftManager(); // at offset 0
        return server;
    }

    private static Object refused(InvocationOnMock call) {
        throw new UnsupportedOperationException(call.getMethod().getName() + " " + Served.INSIDES);
    }

    private static <T> T proxy(Class<T> what, InvocationHandler handler) {
        return what.cast(Proxy.newProxyInstance(what.getClassLoader(), new Class<?>[] {what}, handler));
    }

    /** Of ACLs tests make some, take some away, and look at them. */
    private Option<Plugin<Authorizer>> authorizer() {
        Authorizer authorizer = mock(Authorizer.class, call -> switch (call.getMethod().getName()) {
            case "acls" -> cluster.asked(admin -> admin.describeAcls(call.getArgument(0)).values());
            case "createAcls" -> {
                cluster.asked(admin -> admin.createAcls(call.getArgument(1)).all());
                yield List.of();
            }
            case "deleteAcls" -> {
                cluster.asked(admin -> admin.deleteAcls(call.getArgument(1)).all());
                yield List.of();
            }
            default -> refused(call);
        });
        return Option.apply(Plugin.wrapInstance(authorizer, null, "authorizer.class.name"));
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
            throw new UnsupportedOperationException(method.getName() + " " + Served.INSIDES);
        });
    }

    private MetadataCache metadataCache() {
        return mock(KRaftMetadataCache.class, call -> switch (call.getMethod().getName()) {
            case "contains" -> call.getArgument(0) instanceof String topic && topic(topic).isPresent();
            case "numPartitions" -> topic(call.getArgument(0)).map(each -> each.partitions().size());
            case "getTopicId" -> topic(call.getArgument(0)).map(TopicDescription::topicId).orElse(Uuid.ZERO_UUID);
            case "getAllTopics" -> cluster.asked(admin -> admin.listTopics().names());
            case "getLeaderAndIsr" -> leader(call.getArgument(0), call.getArgument(1)).map(each -> new LeaderAndIsr(each.id(), List.of(each.id())));
            case "getPartitionLeaderEndpoint" -> leader(call.getArgument(0), call.getArgument(1));
            case "getAliveBrokerNodes", "getBrokerNodes" -> cluster.nodes();
            case "hasAliveBroker" -> cluster.nodes().stream().anyMatch(each -> each.id() == (int) call.getArgument(0));
            case "toString" -> "what broker " + id + " tells";
            default -> refused(call);
        });
    }

    private KafkaApis processor() {
        return mock(KafkaApis.class, call -> switch (call.getMethod().getName()) {
            case "metadataCache" -> metadataCache();
            case "authorizerPlugin" -> authorizer();
            case "toString" -> "processor of broker " + id;
            default -> refused(call);
        });
    }

    /** Of its partitions tests know which it leads, and where they begin and end. */
    private ReplicaManager replicaManager() {
        return mock(ReplicaManager.class, call -> switch (call.getMethod().getName()) {
            case "onlinePartition" -> Option.apply(leads(call.getArgument(0)) ? partition(call.getArgument(0)) : null);
            case "localLog" -> Option.apply(exists(call.getArgument(0)) ? log(call.getArgument(0)) : null); // a replica is everywhere
            case "toString" -> "partitions of broker " + id;
            default -> refused(call);
        });
    }

    private LogManager logManager() {
        return mock(LogManager.class, call -> switch (call.getMethod().getName()) {
            case "getLog" -> Option.apply(exists(call.getArgument(0)) ? log(call.getArgument(0)) : null);
            case "getLog$default$2" -> false;
            case "toString" -> "logs of broker " + id;
            default -> refused(call);
        });
    }

    private boolean exists(TopicPartition partition) {
        return topic(partition.topic()).isPresent();
    }

    private boolean leads(TopicPartition partition) {
        return leader(partition.topic(), partition.partition()).filter(leader -> leader.id() == id).isPresent();
    }

    private Partition partition(TopicPartition partition) {
        return mock(Partition.class, call -> switch (call.getMethod().getName()) {
            case "leaderLogIfLocal", "log" -> Option.apply(log(partition));
            case "leaderReplicaIdOpt" -> Option.apply(id);
            case "toString" -> partition.toString();
            default -> refused(call);
        });
    }

    private UnifiedLog log(TopicPartition partition) {
        return mock(UnifiedLog.class, call -> switch (call.getMethod().getName()) {
            case "logEndOffset", "highWatermark" -> offset(partition, OffsetSpec.latest());
            case "logStartOffset" -> offset(partition, OffsetSpec.earliest());
            case "producerStateManager" -> producers(partition);
            case "toString" -> "log of " + partition;
            default -> refused(call);
        });
    }

    private ProducerStateManager producers(TopicPartition partition) {
        return mock(ProducerStateManager.class, call -> switch (call.getMethod().getName()) {
            case "activeProducers" -> cluster
                .asked(admin -> admin.describeProducers(List.of(partition)).partitionResult(partition)).activeProducers().stream()
                .collect(Collectors.toMap(ProducerState::producerId, ServedBroker::entry));
            case "toString" -> "producers of " + partition;
            default -> refused(call);
        });
    }

    private static ProducerStateEntry entry(ProducerState told) {
        return mock(ProducerStateEntry.class, call -> switch (call.getMethod().getName()) {
            case "producerId" -> told.producerId();
            case "producerEpoch" -> (short) told.producerEpoch();
            case "lastSeq" -> told.lastSequence();
            case "lastTimestamp" -> told.lastTimestamp();
            case "toString" -> told.toString();
            default -> refused(call);
        });
    }

    private long offset(TopicPartition partition, OffsetSpec which) {
        return cluster.asked(admin -> admin.listOffsets(Map.of(partition, which)).partitionResult(partition)).offset();
    }

    /** Each broker learns by itself of what another has made, and who answers is not known: one alone may be behind. */
    private Optional<TopicDescription> topic(String name) {
        for (int tries = 0; tries < TRIES; tries++) {
            try {
                return Optional.of(cluster.asked(admin -> admin.describeTopics(List.of(name)).topicNameValues().get(name)));
            } catch (UnknownTopicOrPartitionException error) {
                Served.pause();
            }
        }
        return Optional.empty();
    }

    private Optional<Node> leader(String topic, int partition) {
        return topic(topic).stream()
            .flatMap(each -> each.partitions().stream())
            .filter(each -> each.partition() == partition)
            .map(TopicPartitionInfo::leader)
            .filter(leader -> leader != null && leader.id() >= 0)
            .findFirst();
    }
}
