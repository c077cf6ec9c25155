import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Java's own clients, one step after the other; a step that does not hold ends the program with its reason. */
public class AdminProbe {
    private static final int WAIT_S = 60;
    private static Admin admin;
    private static String address;

    public static void main(String[] args) throws Exception {
        address = args[0];
        String topic = args[1];
        Properties properties = new Properties();
        properties.put("bootstrap.servers", address);
        try (Admin created = Admin.create(properties)) {
            admin = created;
            cluster();
            topics(topic);
            for (String compression : List.of("none", "gzip", "snappy", "lz4", "zstd"))
                for (String acks : List.of("0", "1", "all"))
                    records(topic + "-" + compression + "-" + acks, compression, acks);
            offsets(topic + "-gzip-all");
            settings(topic);
            directories(topic);
            leaders(topic);
            quotas();
            deletion(topic);
        }
        System.out.println("all steps hold");
    }

    private static void cluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        check(cluster.nodes().get(WAIT_S, TimeUnit.SECONDS).size() == 1, "one broker");
        check(cluster.clusterId().get() != null, "a cluster id");
        check(cluster.controller().get().id() == cluster.nodes().get().iterator().next().id(), "the controller");
        FeatureMetadata features = admin.describeFeatures().featureMetadata().get(WAIT_S, TimeUnit.SECONDS);
        System.out.println("features: " + features);
    }

    private static void topics(String topic) throws Exception {
        NewTopic made = new NewTopic(topic, Optional.of(3), Optional.empty()).configs(Map.of("retention.ms", "1234567"));
        CreateTopicsResult result = admin.createTopics(List.of(made));
        result.all().get(WAIT_S, TimeUnit.SECONDS);
        check(result.numPartitions(topic).get() == 3, "three partitions");
        check(result.config(topic).get().get("retention.ms").value().equals("1234567"), "the setting");
        fails("TopicExistsException", () -> admin.createTopics(List.of(made)).all().get(WAIT_S, TimeUnit.SECONDS));
        fails("InvalidReplicationFactorException", () -> admin.createTopics(
            List.of(new NewTopic(topic + "-x", 1, (short) 2))).all().get(WAIT_S, TimeUnit.SECONDS));
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get(WAIT_S, TimeUnit.SECONDS);
        TopicDescription described = admin.describeTopics(List.of(topic)).allTopicNames().get(WAIT_S, TimeUnit.SECONDS).get(topic);
        check(described.partitions().size() == 5, "five partitions");
        check(described.partitions().get(4).leader().id() >= 0, "a leader");
        check(described.topicId().equals(result.topicId(topic).get()), "its id");
        check(admin.listTopics().names().get(WAIT_S, TimeUnit.SECONDS).contains(topic), "it is listed");
    }

    private static void records(String topic, String compression, String acks) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", address);
        settings.put("compression.type", compression);
        settings.put("acks", acks);
        settings.put("linger.ms", 5);
        settings.put("enable.idempotence", acks.equals("all"));
        int count = 500;
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                    topic, 0, 1600000000000L + number, number % 7 == 0 ? null : key(number), number % 5 == 0 ? null : value(number));
                record.headers().add("name", key(number)).add("null", null);
                sent.add(producer.send(record));
            }
            for (int number = 0; number < count; number++) {
                long offset = sent.get(number).get(WAIT_S, TimeUnit.SECONDS).offset();
                check(acks.equals("0") || offset == number, "offset " + offset + " of " + number);
            }
        }
        for (String isolation : List.of("read_uncommitted", "read_committed")) {
            Map<String, Object> reading = new HashMap<>();
            reading.put("bootstrap.servers", address);
            reading.put("isolation.level", isolation);
            reading.put("enable.auto.commit", false);
            try (KafkaConsumer<byte[], byte[]> consumer =
                     new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                TopicPartition partition = new TopicPartition(topic, 0);
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                int number = 0;
                long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
                while (number < count) {
                    check(System.nanoTime() < deadline, number + " records in time");
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(java.time.Duration.ofMillis(200))) {
                        check(record.offset() == number, "offset " + record.offset() + " for " + number);
                        check(record.timestamp() == 1600000000000L + number, "timestamp");
                        check(Arrays.equals(record.key(), number % 7 == 0 ? null : key(number)), "key");
                        check(Arrays.equals(record.value(), number % 5 == 0 ? null : value(number)), "value");
                        check(Arrays.equals(record.headers().lastHeader("name").value(), key(number)), "header");
                        check(record.headers().lastHeader("null").value() == null, "null header");
                        number++;
                    }
                }
                check(consumer.offsetsForTimes(Map.of(partition, 1600000000100L)).get(partition).offset() == 100, "by time");
                check(consumer.endOffsets(List.of(partition)).get(partition) == count, "the end");
                consumer.seek(partition, count - 1);
                check(consumer.poll(java.time.Duration.ofSeconds(WAIT_S)).count() == 1, "the last one");
            }
        }
    }

    private static void offsets(String topic) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        Map<OffsetSpec, Long> expected = new HashMap<>();
        expected.put(OffsetSpec.earliest(), 0L);
        expected.put(OffsetSpec.latest(), 500L);
        expected.put(OffsetSpec.maxTimestamp(), 499L);
        expected.put(OffsetSpec.forTimestamp(1600000000007L), 7L);
        for (Map.Entry<OffsetSpec, Long> entry : expected.entrySet()) {
            long offset = admin.listOffsets(Map.of(partition, entry.getKey())).partitionResult(partition)
                .get(WAIT_S, TimeUnit.SECONDS).offset();
            check(offset == entry.getValue(), "offset " + offset + " and not " + entry.getValue());
        }
        DeletedRecords deleted = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(100)))
            .lowWatermarks().get(partition).get(WAIT_S, TimeUnit.SECONDS);
        check(deleted.lowWatermark() == 100, "the low watermark");
        long earliest = admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).partitionResult(partition)
            .get(WAIT_S, TimeUnit.SECONDS).offset();
        check(earliest == 100, "the new start");
        fails("OffsetOutOfRangeException", () -> admin.deleteRecords(
            Map.of(partition, RecordsToDelete.beforeOffset(501))).all().get(WAIT_S, TimeUnit.SECONDS));
        DescribeProducersResult.PartitionProducerState state = null;
        try {
            state = admin.describeProducers(List.of(partition)).partitionResult(partition).get(WAIT_S, TimeUnit.SECONDS);
            check(state.activeProducers().size() == 1, "one producer");
        } catch (ExecutionException unsupported) {
            System.out.println("describeProducers: " + unsupported.getCause());
        }
    }

    private static void settings(String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Collection<AlterConfigOp> change = List.of(
            new AlterConfigOp(new ConfigEntry("max.message.bytes", "5000"), AlterConfigOp.OpType.SET),
            new AlterConfigOp(new ConfigEntry("retention.ms", null), AlterConfigOp.OpType.DELETE),
            new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND));
        admin.incrementalAlterConfigs(Map.of(resource, change)).all().get(WAIT_S, TimeUnit.SECONDS);
        Config config = admin.describeConfigs(List.of(resource), new DescribeConfigsOptions().includeSynonyms(true)
            .includeDocumentation(true)).all().get(WAIT_S, TimeUnit.SECONDS).get(resource);
        check(config.get("max.message.bytes").value().equals("5000"), "the changed setting");
        check(config.get("max.message.bytes").source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, "its source");
        check(config.get("retention.ms").isDefault(), "the setting that was taken back");
        check(config.get("cleanup.policy").value().contains("compact"), "the longer list");
        check(config.get("max.message.bytes").type() == ConfigEntry.ConfigType.INT, "its type");
        fails("InvalidConfigurationException", () -> admin.incrementalAlterConfigs(Map.of(resource, List.of(
            new AlterConfigOp(new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET)))).all().get(WAIT_S, TimeUnit.SECONDS));
        int id = admin.describeCluster().nodes().get().iterator().next().id();
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(id));
        check(admin.describeConfigs(List.of(broker)).all().get(WAIT_S, TimeUnit.SECONDS).get(broker)
            .get("log.dirs").value().contains(","), "the broker's directories");
    }

    private static void directories(String topic) throws Exception {
        int id = admin.describeCluster().nodes().get().iterator().next().id();
        Map<String, LogDirDescription> found = admin.describeLogDirs(List.of(id)).allDescriptions().get(WAIT_S, TimeUnit.SECONDS).get(id);
        check(found.size() == 2, "two directories");
        TopicPartition partition = new TopicPartition(topic, 0);
        String other = null;
        for (Map.Entry<String, LogDirDescription> entry : found.entrySet()) {
            check(entry.getValue().error() == null, "a directory in order");
            check(entry.getValue().totalBytes().getAsLong() > 0, "the size of the disk");
            if (!entry.getValue().replicaInfos().containsKey(partition))
                other = entry.getKey();
        }
        TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, id);
        admin.alterReplicaLogDirs(Map.of(replica, other)).all().get(WAIT_S, TimeUnit.SECONDS);
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (!admin.describeReplicaLogDirs(List.of(replica)).all().get(WAIT_S, TimeUnit.SECONDS).get(replica)
            .getCurrentReplicaLogDir().equals(other)) {
            check(System.nanoTime() < deadline, "the replica moved in time");
            Thread.sleep(50);
        }
    }

    private static void leaders(String topic) throws Exception {
        fails("ElectionNotNeededException", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(new TopicPartition(topic, 0)))
            .all().get(WAIT_S, TimeUnit.SECONDS));
        check(admin.listPartitionReassignments().reassignments().get(WAIT_S, TimeUnit.SECONDS).isEmpty(), "no reassignments");
        int id = admin.describeCluster().nodes().get().iterator().next().id();
        admin.alterPartitionReassignments(Map.of(new TopicPartition(topic, 0),
            Optional.of(new NewPartitionReassignment(List.of(id))))).all().get(WAIT_S, TimeUnit.SECONDS);
        fails("InvalidReplicaAssignmentException", () -> admin.alterPartitionReassignments(Map.of(new TopicPartition(topic, 0),
            Optional.of(new NewPartitionReassignment(List.of(id + 1))))).all().get(WAIT_S, TimeUnit.SECONDS));
    }

    private static void quotas() throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, "throttled"));
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1000000.0))))).all().get(WAIT_S, TimeUnit.SECONDS);
        Map<ClientQuotaEntity, Map<String, Double>> found =
            admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get(WAIT_S, TimeUnit.SECONDS);
        check(found.get(entity).get("producer_byte_rate") == 1000000.0, "the quota");
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", null))))).all().get(WAIT_S, TimeUnit.SECONDS);
        check(admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get(WAIT_S, TimeUnit.SECONDS).isEmpty(), "no quota");
    }

    private static void deletion(String topic) throws Exception {
        admin.deleteTopics(List.of(topic)).all().get(WAIT_S, TimeUnit.SECONDS);
        fails("UnknownTopicOrPartitionException", () -> admin.deleteTopics(List.of(topic)).all().get(WAIT_S, TimeUnit.SECONDS));
        check(!admin.listTopics().names().get(WAIT_S, TimeUnit.SECONDS).contains(topic), "it is gone");
        org.apache.kafka.common.Uuid id = admin.describeTopics(List.of(topic + "-none-1")).allTopicNames()
            .get(WAIT_S, TimeUnit.SECONDS).get(topic + "-none-1").topicId();
        admin.deleteTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(Collections.singletonList(id))).all()
            .get(WAIT_S, TimeUnit.SECONDS);
    }

    private static byte[] key(int number) {
        return ("key-" + number).getBytes();
    }

    private static byte[] value(int number) {
        return ("value ".repeat(20) + number).getBytes();
    }

    private interface Step {
        void run() throws Exception;
    }

    private static void fails(String name, Step step) throws Exception {
        try {
            step.run();
        } catch (ExecutionException error) {
            String found = error.getCause().getClass().getSimpleName();
            check(found.equals(name), found + " and not " + name + ": " + error.getCause().getMessage());
            return;
        }
        check(false, name + " was expected");
    }

    private static void check(boolean holds, String what) {
        if (!holds)
            throw new AssertionError(what);
    }
}
