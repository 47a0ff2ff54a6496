// Apache Camel, at least once: a route commits by hand when the double was acknowledged.

import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.component.kafka.KafkaConstants;
import org.apache.camel.component.kafka.consumer.KafkaManualCommit;
import org.apache.camel.main.Main;

public class CamelRoute extends RouteBuilder {
    private static String bootstrap, source, target;

    @Override
    public void configure() {
        onException(Exception.class).maximumRedeliveries(-1).redeliveryDelay(200);
        from("kafka:" + source + "?brokers=" + bootstrap + "&groupId=camel&autoOffsetReset=earliest"
                + "&autoCommitEnable=false&allowManualCommit=true&sessionTimeoutMs=10000"
                + "&kafkaManualCommitFactory=#class:" + MANUAL)
            .process(exchange -> {
                long number = Long.parseLong(exchange.getMessage().getBody(String.class));
                exchange.getMessage().setBody(String.format("%-200d", 2 * number));
                exchange.getMessage().removeHeader(KafkaConstants.KEY);
                exchange.getMessage().removeHeader(KafkaConstants.PARTITION_KEY);
            })
            .to("kafka:" + target + "?brokers=" + bootstrap + "&compressionCodec=gzip&requestRequiredAcks=all")
            .process(exchange -> exchange.getMessage()
                .getHeader(KafkaConstants.MANUAL_COMMIT, KafkaManualCommit.class).commit());
    }

    private static final String MANUAL =
        "org.apache.camel.component.kafka.consumer.DefaultKafkaManualCommitFactory";

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        source = arguments[1];
        target = arguments[2];
        Main main = new Main();
        main.configure().addRoutesBuilder(new CamelRoute());
        main.run();
    }
}
