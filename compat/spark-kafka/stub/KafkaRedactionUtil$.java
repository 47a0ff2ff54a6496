package org.apache.spark.kafka010;

import java.util.Locale;
import scala.Tuple2;
import scala.collection.immutable.Seq;

/** Hides what must not be logged. See {@link KafkaConfigUpdater}. */
public final class KafkaRedactionUtil$ {
  public static final KafkaRedactionUtil$ MODULE$ = new KafkaRedactionUtil$();

  private KafkaRedactionUtil$() {}

  @SuppressWarnings("unchecked")
  public Seq<Tuple2<String, String>> redactParams(Seq<Tuple2<String, Object>> settings) {
    return (Seq<Tuple2<String, String>>) settings.map(each -> new Tuple2<>(each._1(), shown(each._1(), each._2())));
  }

  private static String shown(String name, Object value) {
    String lower = name.toLowerCase(Locale.ROOT);
    boolean secret = lower.contains("password") || lower.contains("secret") || lower.contains("jaas");
    return value == null ? null : secret ? "*********(redacted)" : value.toString();
  }
}
