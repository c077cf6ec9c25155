import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions of Java's producer and administration; a step that does not hold ends the program with its reason. */
public class TransactionsProbe {
    private static final int WAIT_S = 120;
    private static final int PARTITIONS = 3;
    private static String address;
    private static Admin admin;

    public static void main(String[] args) throws Exception {
        address = args[0];
        String prefix = args[1];
        try (Admin created = Admin.create(Map.of("bootstrap.servers", address))) {
            admin = created;
            commitAndAbort(prefix + "-ends");
            fencing(prefix + "-fenced");
            timeOut(prefix + "-late");
            copying(prefix + "-copied");
            administration(prefix + "-admin");
        }
        System.out.println("all steps hold");
    }

    private static void commitAndAbort(String topic) throws Exception {
        create(topic);
        Set<String> expected = new HashSet<>();
        try (KafkaProducer<String, String> producer = producer(topic, 60_000)) {
            producer.initTransactions();
            for (int number = 0; number < 40; number++) {
                producer.beginTransaction();
                for (int index = 0; index < 5; index++)
                    producer.send(new ProducerRecord<>(topic, index % PARTITIONS, null, number + "." + index));
                producer.flush();
                if (number % 4 == 3) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                    for (int index = 0; index < 5; index++)
                        expected.add(number + "." + index);
                }
            }
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "open")).get(WAIT_S, TimeUnit.SECONDS);
            List<String> committed = read(topic, "read_committed", expected.size());
            check(new HashSet<>(committed).equals(expected) && committed.size() == expected.size(), "all that is committed, once");
            check(read(topic, "read_uncommitted", 201).size() == 201, "all that there is");
            Map<TopicPartition, Long> stable = ends(topic, IsolationLevelOf.committed());
            Map<TopicPartition, Long> ends = ends(topic, IsolationLevelOf.uncommitted());
            TopicPartition first = new TopicPartition(topic, 0);
            check(stable.get(first) == ends.get(first) - 1, "what is open is not stable");
            producer.commitTransaction();
        }
        expected.add("open");
        check(new HashSet<>(read(topic, "read_committed", expected.size())).equals(expected), "what was open is committed");
    }

    private static final class IsolationLevelOf {
        static ListOffsetsOptions committed() {
            return new ListOffsetsOptions(org.apache.kafka.common.IsolationLevel.READ_COMMITTED);
        }

        static ListOffsetsOptions uncommitted() {
            return new ListOffsetsOptions(org.apache.kafka.common.IsolationLevel.READ_UNCOMMITTED);
        }
    }

    private static void fencing(String topic) throws Exception {
        create(topic);
        KafkaProducer<String, String> first = producer(topic, 60_000);
        try (KafkaProducer<String, String> second = producer(topic, 60_000)) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, 0, null, "of the first")).get(WAIT_S, TimeUnit.SECONDS);
            second.initTransactions();
            boolean isFenced = false;
            try {
                first.commitTransaction();
            } catch (ProducerFencedException | InvalidProducerEpochException e) {
                isFenced = true;
            }
            check(isFenced, "the first is fenced");
            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, 0, null, "of the second"));
            second.commitTransaction();
        } finally {
            first.close(Duration.ZERO);
        }
        check(read(topic, "read_committed", 1).equals(List.of("of the second")), "only the second is visible");
    }

    /** The broker aborts a transaction that takes too long, and its producer is told. */
    private static void timeOut(String topic) throws Exception {
        create(topic);
        try (KafkaProducer<String, String> late = producer(topic, 1_000)) {
            late.initTransactions();
            late.beginTransaction();
            late.send(new ProducerRecord<>(topic, 0, null, "too late")).get(WAIT_S, TimeUnit.SECONDS);
            waitFor(() -> {
                try {
                    return ends(topic, IsolationLevelOf.committed()).get(new TopicPartition(topic, 0)) == 2;
                } catch (Exception e) {
                    throw new KafkaException(e);
                }
            }, "the transaction is aborted");
            boolean isTold = false;
            try {
                late.commitTransaction();
            } catch (KafkaException e) {
                isTold = true;
            }
            check(isTold, "its producer cannot commit it");
        }
        try (KafkaProducer<String, String> next = producer(topic, 60_000)) {
            next.initTransactions();
            next.beginTransaction();
            next.send(new ProducerRecord<>(topic, 0, null, "in time"));
            next.commitTransaction();
        }
        check(read(topic, "read_committed", 1).equals(List.of("in time")), "only what was in time is visible");
    }

    /** Consumes, transforms and produces; every third transaction is aborted and done again. */
    private static void copying(String topic) throws Exception {
        String to = topic + "-to";
        create(topic);
        create(to);
        try (KafkaProducer<String, String> producer = producer(topic + "-in", 60_000)) {
            producer.initTransactions();
            producer.beginTransaction();
            for (int number = 0; number < 300; number++)
                producer.send(new ProducerRecord<>(topic, number % PARTITIONS, null, "" + number));
            producer.commitTransaction();
        }
        Map<String, Object> settings = new HashMap<>(consumerSettings("read_committed"));
        settings.put("group.id", topic);
        settings.put("max.poll.records", 20);
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
             KafkaProducer<String, String> producer = producer(topic, 60_000)) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic));
            int[] state = {0, 0};
            waitFor(() -> {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                if (records.isEmpty())
                    return false;
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(to, record.partition(), null, "copy of " + record.value()));
                    offsets.put(new TopicPartition(topic, record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (state[0]++ % 3 == 2) {
                    producer.abortTransaction();
                    Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
                    for (TopicPartition partition : consumer.assignment())
                        consumer.seek(partition, committed.get(partition) == null ? 0 : committed.get(partition).offset());
                } else {
                    producer.commitTransaction();
                    state[1] += records.count();
                }
                return state[1] == 300;
            }, "300 are copied");
        }
        List<String> copied = read(to, "read_committed", 300);
        check(copied.size() == 300 && new HashSet<>(copied).size() == 300, "each once: " + copied.size());
        long consumed = admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get(WAIT_S, TimeUnit.SECONDS)
            .values().stream().mapToLong(OffsetAndMetadata::offset).sum();
        check(consumed == 300, "300 are consumed: " + consumed);
    }

    private static void administration(String id) throws Exception {
        create(id);
        TopicPartition partition = new TopicPartition(id, 0);
        KafkaProducer<String, String> hanging = producer(id, 600_000);
        try {
            hanging.initTransactions();
            hanging.beginTransaction();
            hanging.send(new ProducerRecord<>(id, 0, null, "hangs")).get(WAIT_S, TimeUnit.SECONDS);
            TransactionDescription described = admin.describeTransactions(List.of(id)).description(id).get(WAIT_S, TimeUnit.SECONDS);
            check(described.state() == TransactionState.ONGOING, "ongoing: " + described);
            check(described.topicPartitions().equals(Set.of(partition)), "its partition: " + described);
            check(described.transactionTimeoutMs() == 600_000, "its time-out: " + described);
            check(described.transactionStartTimeMs().isPresent(), "its start: " + described);
            boolean isListed = admin.listTransactions(new ListTransactionsOptions().filterStates(Set.of(TransactionState.ONGOING)))
                .all().get(WAIT_S, TimeUnit.SECONDS).stream()
                .anyMatch(each -> each.transactionalId().equals(id) && each.producerId() == described.producerId());
            check(isListed, "it is listed");
            ProducerState state = admin.describeProducers(List.of(partition)).partitionResult(partition)
                .get(WAIT_S, TimeUnit.SECONDS).activeProducers().get(0);
            check(state.producerId() == described.producerId(), "the producer: " + state);
            check(state.currentTransactionStartOffset().getAsLong() == 0, "where it began: " + state);
            admin.abortTransaction(new AbortTransactionSpec(partition, state.producerId(), (short) state.producerEpoch(),
                state.coordinatorEpoch().orElse(0))).all().get(WAIT_S, TimeUnit.SECONDS);
            check(ends(id, IsolationLevelOf.committed()).get(partition) == 2, "the partition is stable again");
            admin.fenceProducers(List.of(id)).all().get(WAIT_S, TimeUnit.SECONDS);
        } finally {
            hanging.close(Duration.ZERO);
        }
        check(read(id, "read_committed", 0).isEmpty(), "nothing is visible");
        try {
            admin.describeTransactions(List.of(id + "-none")).description(id + "-none").get(WAIT_S, TimeUnit.SECONDS);
            check(false, "an unknown transactional id");
        } catch (ExecutionException e) {
            check(e.getCause().getClass().getSimpleName().equals("TransactionalIdNotFoundException"), "not " + e.getCause());
        }
    }

    private static KafkaProducer<String, String> producer(String transactionalId, int timeoutMs) {
        return new KafkaProducer<>(Map.of("bootstrap.servers", address, "transactional.id", transactionalId,
            "transaction.timeout.ms", timeoutMs), new StringSerializer(), new StringSerializer());
    }

    private static Map<String, Object> consumerSettings(String isolation) {
        return Map.of("bootstrap.servers", address, "isolation.level", isolation, "auto.offset.reset", "earliest",
            "enable.auto.commit", false);
    }

    /** All values up to the end of the topic as it is for this isolation, at least so many. */
    private static List<String> read(String topic, String isolation, int count) throws Exception {
        List<TopicPartition> partitions = IntStream.range(0, PARTITIONS)
            .mapToObj(number -> new TopicPartition(topic, number)).collect(Collectors.toList());
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(consumerSettings(isolation), new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            waitFor(() -> {
                consumer.poll(Duration.ofMillis(50)).forEach(record -> values.add(record.value()));
                Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
                return values.size() >= count
                    && partitions.stream().allMatch(each -> consumer.position(each) >= ends.get(each));
            }, count + " records of " + topic + ", " + isolation);
        }
        return values;
    }

    private static Map<TopicPartition, Long> ends(String topic, ListOffsetsOptions options) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        for (int number = 0; number < PARTITIONS; number++)
            asked.put(new TopicPartition(topic, number), OffsetSpec.latest());
        Map<TopicPartition, Long> ends = new HashMap<>();
        admin.listOffsets(asked, options).all().get(WAIT_S, TimeUnit.SECONDS)
            .forEach((partition, found) -> ends.put(partition, found.offset()));
        return ends;
    }

    private static void create(String topic) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get(WAIT_S, TimeUnit.SECONDS);
    }

    private static void waitFor(BooleanSupplier isSo, String what) {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (!isSo.getAsBoolean())
            check(System.nanoTime() < deadline, "in time: " + what);
        System.out.println(what);
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            System.err.println("does not hold: " + what);
            System.exit(1);
        }
    }
}
