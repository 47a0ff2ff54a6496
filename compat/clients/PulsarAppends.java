// Transactions of Pulsar's Java client, each as a line of standard input tells it, for those who drive it and know what they asked.
//   compat/pulsar-java.sh compat/clients/PulsarAppends.java pulsar://HOST:PORT SECONDS
// A line in: commit|abort TOPIC=VALUE TOPIC=VALUE ...; the values are sent in this order, all in one transaction of at most SECONDS.
// A line out: committed, aborted (also what was never asked to be committed), or either WHY, when nobody told; then a tab and why.
// It ends with its standard input.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.client.impl.transaction.TransactionImpl;

public class PulsarAppends {
    static final long PATIENCE_S = 60;
    static final Map<String, Producer<String>> producers = new HashMap<>();
    static PulsarClient client;

    public static void main(String[] args) throws Exception {
        client = connected(args[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null;) {
            System.out.println(done(line.split(" "), Long.parseLong(args[1])));
            System.out.flush();
        }
        System.exit(0); // the client's threads would keep it going
    }

    static PulsarClient connected(String url) throws Exception {
        while (true) {
            try { // it asks for the coordinators once, at the beginning
                return PulsarClient.builder().serviceUrl(url).enableTransaction(true).operationTimeout(30, TimeUnit.SECONDS).build();
            } catch (Exception error) {
                System.err.println("connects again: " + error);
                Thread.sleep(500);
            }
        }
    }

    static String done(String[] words, long seconds) throws Exception {
        Transaction transaction;
        try {
            transaction = client.newTransaction().withTransactionTimeout(seconds, TimeUnit.SECONDS).build().get(PATIENCE_S, TimeUnit.SECONDS);
        } catch (Exception error) {
            return "aborted\tbegin: " + root(error);
        }
        String failed = "";
        try {
            // Values that the client is given while it makes a topic part of the transaction may change places: what waits for
            // that and what comes at that moment are sent by two threads (apache/pulsar#14669).
            for (int i = 1; i < words.length; i++)
                ((TransactionImpl) transaction).registerProducedTopic(words[i].substring(0, words[i].indexOf('='))).get(PATIENCE_S, TimeUnit.SECONDS);
            List<CompletableFuture<MessageId>> sent = new ArrayList<>();
            for (int i = 1; i < words.length; i++) {
                int at = words[i].indexOf('=');
                sent.add(producer(words[i].substring(0, at)).newMessage(transaction).value(words[i].substring(at + 1)).sendAsync());
            }
            for (CompletableFuture<MessageId> each : sent) each.get(PATIENCE_S, TimeUnit.SECONDS);
        } catch (Exception error) {
            failed = "send: " + root(error);
        }
        if (failed.isEmpty() && words[0].equals("commit")) {
            try {
                transaction.commit().get(PATIENCE_S, TimeUnit.SECONDS);
                return "committed";
            } catch (Exception error) {
                return "either\tcommit: " + root(error);
            }
        }
        try {
            transaction.abort().get(PATIENCE_S, TimeUnit.SECONDS);
        } catch (Exception error) {
            failed += " abort: " + root(error);
        }
        return "aborted" + (failed.isEmpty() ? "" : "\t" + failed);
    }

    static Producer<String> producer(String topic) throws Exception {
        Producer<String> found = producers.get(topic);
        if (found == null) {
            found = client.newProducer(Schema.STRING).topic(topic).sendTimeout(0, TimeUnit.SECONDS).blockIfQueueFull(true)
                .batchingMaxPublishDelay(5, TimeUnit.MILLISECONDS).create();
            producers.put(topic, found);
        }
        return found;
    }

    static String root(Throwable error) {
        while (error.getCause() != null && error.getCause() != error) error = error.getCause();
        return error.toString().replace('\n', ' ');
    }
}
