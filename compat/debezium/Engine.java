import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Debezium's engine; what it says goes to topics of a broker, and an offset is kept once the broker has all before it. */
public class Engine {
  public static void main(String[] arguments) throws Exception {
    Properties connector = new Properties();
    try (FileReader file = new FileReader(arguments[0])) {
      connector.load(file);
    }
    Properties client = new Properties();
    client.put("bootstrap.servers", arguments[1]);
    client.put("acks", "all");
    client.put("max.request.size", "20000000");
    KafkaProducer<String, String> producer =
        new KafkaProducer<>(client, new StringSerializer(), new StringSerializer());
    DebeziumEngine<ChangeEvent<String, String>> engine =
        DebeziumEngine.create(Json.class)
            .using(connector)
            .using((success, message, error) -> System.out.println("ended: " + message + " " + error))
            .notifying((events, committer) -> send(events, committer, producer))
            .build();
    Executors.newSingleThreadExecutor().execute(engine);
    System.out.println("started");
    while (System.in.read() >= 0) {}
    engine.close();
    producer.close();
    System.exit(0);
  }

  private static void send(
      List<ChangeEvent<String, String>> events,
      DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer,
      KafkaProducer<String, String> producer)
      throws InterruptedException {
    for (ChangeEvent<String, String> event : events) {
      producer.send(new ProducerRecord<>(event.destination(), event.key(), event.value()));
    }
    producer.flush();
    for (ChangeEvent<String, String> event : events) {
      committer.markProcessed(event);
    }
    committer.markBatchFinished();
  }
}
