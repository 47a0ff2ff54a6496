package kafka.server;

import java.util.Properties;
import java.util.stream.Stream;
import kafka.utils.Logging;
import kafka.utils.TestInfoUtils$;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.junit.Served;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.server.common.MetadataVersion;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.params.provider.Arguments;
import scala.Option;
import scala.collection.Seq;
import scala.collection.immutable.Nil$;

/**
 * Takes the place of what starts a controller for the tests of Kafka's core: there is none. Brokers are started by
 * {@link kafka.integration.KafkaServerTestHarness}; tests that start them one by one, as they are inside, are skipped.
 */
@Tag("integration")
public abstract class QuorumTestHarness implements Logging {
    private TestInfo testInfo;
    private String logIdent = "";

    public static Stream<Arguments> getTestGroupProtocolParametersAll() {
        return QuorumTestHarness$.MODULE$.getTestGroupProtocolParametersAll();
    }

    public static Stream<Arguments> getTestGroupProtocolParametersClassicGroupProtocolOnly() {
        return QuorumTestHarness$.MODULE$.getTestGroupProtocolParametersClassicGroupProtocolOnly();
    }

    public static Stream<Arguments> getTestGroupProtocolParametersConsumerGroupProtocolOnly() {
        return QuorumTestHarness$.MODULE$.getTestGroupProtocolParametersConsumerGroupProtocolOnly();
    }

    @Override
    public String logIdent() {
        return logIdent;
    }

    @Override
    public void logIdent_$eq(String ident) {
        logIdent = ident;
    }

    @BeforeEach
    public void setUp(TestInfo testInfo) {
        this.testInfo = testInfo;
    }

    @AfterEach
    public void tearDown() {
        System.clearProperty("java.security.auth.login.config");
    }

    protected TestInfo toldOfTest() {
        return testInfo;
    }

    public Option<GroupProtocol> maybeGroupProtocolSpecified() {
        return TestInfoUtils$.MODULE$.maybeGroupProtocolSpecified(testInfo);
    }

    public GroupProtocol groupProtocolFromTestParameters() {
        if (maybeGroupProtocolSpecified().isEmpty())
            throw new IllegalStateException("the test does not say its group protocol");
        return maybeGroupProtocolSpecified().get();
    }

    public Seq<Properties> kraftControllerConfigs(TestInfo testInfo) {
        return nothing();
    }

    public SecurityProtocol controllerListenerSecurityProtocol() {
        return SecurityProtocol.PLAINTEXT;
    }

    public Seq<SecurityProtocol> extraControllerSecurityProtocols() {
        return nothing();
    }

    public MetadataVersion metadataVersion() {
        return MetadataVersion.latestTesting();
    }

    public void addFormatterSettings(Formatter formatter) { }

    public ControllerServer controllerServer() {
        throw new UnsupportedOperationException(Served.INSIDES);
    }

    /** None: nobody has to wait for what they have written. */
    public Seq<ControllerServer> controllerServers() {
        return nothing();
    }

    public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, Option<String> threadNamePrefix) {
        throw new UnsupportedOperationException("starts a broker by itself, and so " + Served.INSIDES);
    }

    public Time createBroker$default$2() {
        return Time.SYSTEM;
    }

    public boolean createBroker$default$3() {
        return true;
    }

    public Option<String> createBroker$default$4() {
        return Option.empty();
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static <T> Seq<T> nothing() {
        return (Seq) Nil$.MODULE$;
    }
}
