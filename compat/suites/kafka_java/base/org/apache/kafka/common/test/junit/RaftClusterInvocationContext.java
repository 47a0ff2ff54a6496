package org.apache.kafka.common.test.junit;

import java.util.List;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

/**
 * Takes the place of Kafka's class of this name, which starts Kafka's brokers in the tests' process: each test gets Magnetar's,
 * as many as it wants, in processes of their own. Tests that want a controller in the broker's process differ in nothing then
 * and are left out.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String name;
    private final ClusterConfig config;
    private final boolean combined;

    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean combined) {
        this.name = name;
        this.config = config;
        this.combined = combined;
    }

    @Override
    public String getDisplayName(int index) {
        return name + " [" + index + "] " + String.join(",", config.displayTags());
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        ServedCluster cluster = new ServedCluster(config);
        if (combined && config.clusterTypes().contains(Type.KRAFT))
            return List.of(
                (ExecutionCondition) context -> ConditionEvaluationResult.disabled("the same as without a controller"),
                new ClusterInstanceParameterResolver(cluster));
        return List.of(
            (BeforeEachCallback) context -> {
                if (config.isAutoStart())
                    cluster.start();
            },
            (AfterTestExecutionCallback) context -> cluster.stop(),
            new ClusterInstanceParameterResolver(cluster));
    }
}
