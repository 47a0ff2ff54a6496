package org.apache.spark.kafka010;

import java.util.HashMap;
import java.util.Map;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Collects the settings of one Kafka client for Spark's connector, which expects this class from its token provider.
 * That module is not needed for brokers without Kerberos' delegation tokens, and not every mirror has it.
 */
public final class KafkaConfigUpdater {
  private final Map<String, Object> settings;

  public KafkaConfigUpdater(String module, scala.collection.immutable.Map<String, Object> given) {
    settings = new HashMap<>(CollectionConverters.asJava(given));
  }

  public KafkaConfigUpdater set(String name, Object value) {
    settings.put(name, value);
    return this;
  }

  public KafkaConfigUpdater setIfUnset(String name, Object value) {
    settings.putIfAbsent(name, value);
    return this;
  }

  public KafkaConfigUpdater setAuthenticationConfigIfNeeded() {
    return this;
  }

  public KafkaConfigUpdater setAuthenticationConfigIfNeeded(Option<?> cluster) {
    return this;
  }

  public Map<String, Object> build() {
    return settings;
  }
}
