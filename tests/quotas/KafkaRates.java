// Prints what Kafka's own Rate and TokenBucket say of a seeded run, one step to a line; kafka_rates.txt is made by it:
//   compat/kafka-tools.sh tests/quotas/KafkaRates.java > tests/quotas/kafka_rates.txt
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;

public class KafkaRates {
    public static void main(String[] args) {
        System.out.println("# samples seconds bound time_ms value | rate window_ms tokens");
        int[][] windows = {{11, 1}, {1, 1}, {2, 3}, {5, 1}};
        for (int[] window : windows) {
            Random dice = new Random(window[0] * 100 + window[1]);
            double bound = 1000;
            MetricConfig config = new MetricConfig().samples(window[0])
                .timeWindow(window[1], TimeUnit.SECONDS).quota(Quota.upperBound(bound));
            Rate rate = new Rate();
            TokenBucket bucket = new TokenBucket();
            long now = 1_700_000_000_000L;
            for (int step = 0; step < 150; step++) {
                int kind = dice.nextInt(10);
                now += kind < 6 ? dice.nextInt(300) : kind < 9 ? dice.nextInt(2500) : dice.nextInt(20000);
                long value = dice.nextInt(5) == 0 ? dice.nextInt(20000) : dice.nextInt(1500);
                rate.record(config, value, now);
                bucket.record(config, value, now);
                System.out.println(window[0] + " " + window[1] + " " + bound + " " + now + " " + value + " | "
                    + rate.measure(config, now) + " " + rate.windowSize(config, now) + " " + bucket.measure(config, now));
            }
        }
    }
}
