import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Groups of Java's consumers. The third argument is what a group.protocol setting is: "classic" runs every assignor of
 * the client, "consumer" those of the broker. A step that does not hold ends the program with its reason.
 */
public class GroupsProbe {
    private static final int WAIT_S = 120;
    private static final int PARTITIONS = 4;
    private static final String ASSIGNORS = "org.apache.kafka.clients.consumer.";
    private static String address;
    private static Admin admin;

    public static void main(String[] args) throws Exception {
        address = args[0];
        String prefix = args[1];
        boolean isClassic = args[2].equals("classic");
        try (Admin created = Admin.create(Map.of("bootstrap.servers", address))) {
            admin = created;
            List<Map<String, Object>> kinds = isClassic
                ? List.of(
                    Map.of("partition.assignment.strategy", ASSIGNORS + "RangeAssignor"),
                    Map.of("partition.assignment.strategy", ASSIGNORS + "RoundRobinAssignor"),
                    Map.of("partition.assignment.strategy", ASSIGNORS + "StickyAssignor"),
                    Map.of("partition.assignment.strategy", ASSIGNORS + "CooperativeStickyAssignor"))
                : List.of(
                    Map.of("group.protocol", "consumer"),
                    Map.of("group.protocol", "consumer", "group.remote.assignor", "uniform"),
                    Map.of("group.protocol", "consumer", "group.remote.assignor", "range"));
            for (int kind = 0; kind < kinds.size(); kind++)
                sharing(prefix + "-sharing-" + kind, kinds.get(kind));
            Map<String, Object> plain = kinds.get(0);
            staticMembers(prefix + "-static", plain, isClassic);
            administration(prefix + "-admin", plain, isClassic);
            growing(prefix + "-growing", plain);
        }
        System.out.println("all steps hold");
    }

    /** Two members share what there is; when one leaves, the other goes on where it was. */
    private static void sharing(String topic, Map<String, Object> kind) throws Exception {
        create(topic);
        try (Member second = new Member(topic, topic, kind)) {
            try (Member first = new Member(topic, topic, kind)) {
                List<Member> both = List.of(first, second);
                poll(both, () -> first.owned() == 2 && second.owned() == 2, topic + " is shared by two");
                produce(topic, 0, 200);
                poll(both, () -> first.values.size() + second.values.size() >= 200, "200 records came");
                Set<String> all = new HashSet<>(first.values);
                all.addAll(second.values);
                check(all.size() == 200 && first.values.size() + second.values.size() == 200, "each came once");
                first.consumer.commitSync();
                second.consumer.commitSync();
            }
            poll(List.of(second), () -> second.owned() == PARTITIONS, "the one that is left has all");
            second.values.clear();
            produce(topic, 200, 240);
            poll(List.of(second), () -> second.values.size() >= 40, "40 more came");
            check(new HashSet<>(second.values).size() == 40 && second.values.size() == 40, "nothing came again");
            second.consumer.commitSync();
        }
        Map<TopicPartition, OffsetAndMetadata> committed =
            admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get(WAIT_S, TimeUnit.SECONDS);
        check(committed.values().stream().mapToLong(OffsetAndMetadata::offset).sum() == 240, "all is committed");
    }

    private static void staticMembers(String topic, Map<String, Object> kind, boolean isClassic) throws Exception {
        create(topic);
        Map<String, Object> one = with(kind, "group.instance.id", "one");
        Map<String, Object> two = with(kind, "group.instance.id", "two");
        if (isClassic) {
            one.put("session.timeout.ms", 120_000);
            two.put("session.timeout.ms", 120_000);
        }
        try (Member second = new Member(topic, topic, two)) {
            Set<TopicPartition> before;
            try (Member first = new Member(topic, topic, one)) {
                poll(List.of(first, second), () -> first.owned() == 2 && second.owned() == 2, "two static members");
                before = first.consumer.assignment();
            }
            int revoked = second.revoked;
            try (Member back = new Member(topic, topic, one)) {
                poll(List.of(back, second), () -> back.owned() == 2, "one is back");
                check(back.consumer.assignment().equals(before), "with what it had");
                check(second.revoked == revoked, "and the other has not noticed");
                if (isClassic) {
                    try (Member usurper = new Member(topic, topic, one)) {
                        fenced(back, usurper, second);
                    }
                }
            }
        }
        int left = admin.describeConsumerGroups(List.of(topic)).all().get(WAIT_S, TimeUnit.SECONDS).get(topic).members().size();
        check(left > 0, "static members are still there");
        if (isClassic) {
            admin.removeMembersFromConsumerGroup(topic, new RemoveMembersFromConsumerGroupOptions(List.of(
                new MemberToRemove("one"), new MemberToRemove("two")))).all().get(WAIT_S, TimeUnit.SECONDS);
            left = admin.describeConsumerGroups(List.of(topic)).all().get(WAIT_S, TimeUnit.SECONDS).get(topic).members().size();
            check(left == 0, "static members are gone");
        }
    }

    private static void fenced(Member fenced, Member usurper, Member other) {
        boolean[] isFenced = {false};
        waitFor(() -> {
            usurper.poll();
            other.poll();
            try {
                fenced.poll();
                fenced.consumer.commitSync();
            } catch (FencedInstanceIdException e) {
                isFenced[0] = true;
            }
            return isFenced[0];
        }, "whoever has the instance id no more is fenced");
    }

    private static void administration(String group, Map<String, Object> kind, boolean isClassic) throws Exception {
        create(group);
        produce(group, 0, 40);
        TopicPartition first = new TopicPartition(group, 0);
        try (Member member = new Member(group, group, with(kind, "client.id", "probe"))) {
            poll(List.of(member), () -> member.values.size() == 40, "40 records came");
            member.consumer.commitSync();
            ConsumerGroupDescription described =
                admin.describeConsumerGroups(List.of(group)).all().get(WAIT_S, TimeUnit.SECONDS).get(group);
            check(described.members().size() == 1, "one member");
            MemberDescription one = described.members().iterator().next();
            check(one.clientId().equals("probe"), "its client id: " + one);
            check(one.assignment().topicPartitions().size() == PARTITIONS, "its assignment: " + one);
            check(described.coordinator().id() >= 0, "a coordinator");
            boolean isListed = admin.listConsumerGroups().all().get(WAIT_S, TimeUnit.SECONDS).stream()
                .anyMatch(each -> each.groupId().equals(group) && !each.isSimpleConsumerGroup());
            check(isListed, "it is listed");
            fails("GroupNotEmptyException", () -> admin.deleteConsumerGroups(List.of(group)).all().get(WAIT_S, TimeUnit.SECONDS));
            fails("GroupSubscribedToTopicException", () ->
                admin.deleteConsumerGroupOffsets(group, Set.of(first)).all().get(WAIT_S, TimeUnit.SECONDS));
            fails("UnknownMemberIdException", () ->
                admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(3))).all().get(WAIT_S, TimeUnit.SECONDS));
        }
        admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(3, "by hand"))).all().get(WAIT_S, TimeUnit.SECONDS);
        OffsetAndMetadata altered =
            admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(WAIT_S, TimeUnit.SECONDS).get(first);
        check(altered.offset() == 3 && altered.metadata().equals("by hand"), "it is altered: " + altered);
        admin.deleteConsumerGroupOffsets(group, Set.of(first)).all().get(WAIT_S, TimeUnit.SECONDS);
        Map<TopicPartition, OffsetAndMetadata> left =
            admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(WAIT_S, TimeUnit.SECONDS);
        check(left.size() == PARTITIONS - 1 && !left.containsKey(first), "one offset is deleted: " + left);
        admin.deleteConsumerGroups(List.of(group)).all().get(WAIT_S, TimeUnit.SECONDS);
        fails("GroupIdNotFoundException", () -> admin.deleteConsumerGroups(List.of(group)).all().get(WAIT_S, TimeUnit.SECONDS));
    }

    /** Partitions that come later are given to somebody too. */
    private static void growing(String topic, Map<String, Object> kind) throws Exception {
        create(topic);
        Map<String, Object> watchful = with(kind, "metadata.max.age.ms", 500);
        try (Member member = new Member(topic, topic, watchful)) {
            poll(List.of(member), () -> member.owned() == PARTITIONS, "all partitions");
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(PARTITIONS + 2))).all().get(WAIT_S, TimeUnit.SECONDS);
            poll(List.of(member), () -> member.owned() == PARTITIONS + 2, "the new ones too");
        }
    }

    private static class Member implements AutoCloseable, ConsumerRebalanceListener {
        final KafkaConsumer<String, String> consumer;
        final List<String> values = new ArrayList<>();
        int revoked;

        Member(String group, String topic, Map<String, Object> settings) {
            Map<String, Object> all = new HashMap<>(Map.of(
                "bootstrap.servers", address,
                "group.id", group,
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false));
            if (!settings.containsKey("group.protocol"))
                all.put("heartbeat.interval.ms", 200);
            all.putAll(settings);
            consumer = new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(topic), this);
        }

        void poll() {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50)))
                values.add(record.value());
        }

        int owned() {
            return consumer.assignment().size();
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            revoked += partitions.size();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) { }

        @Override
        public void close() {
            try {
                consumer.close(Duration.ofSeconds(30));
            } catch (FencedInstanceIdException e) {
                // It knows already.
            }
        }
    }

    private static void create(String topic) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get(WAIT_S, TimeUnit.SECONDS);
    }

    private static void produce(String topic, int from, int to) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", address), new StringSerializer(), new StringSerializer())) {
            for (int number = from; number < to; number++)
                producer.send(new ProducerRecord<>(topic, number % PARTITIONS, null, "" + number));
        }
    }

    private static Map<String, Object> with(Map<String, Object> settings, String name, Object value) {
        Map<String, Object> more = new HashMap<>(settings);
        more.put(name, value);
        return more;
    }

    private static void poll(List<Member> members, BooleanSupplier isSo, String what) {
        waitFor(() -> {
            members.forEach(Member::poll);
            return isSo.getAsBoolean();
        }, what);
    }

    private static void waitFor(BooleanSupplier isSo, String what) {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (!isSo.getAsBoolean())
            check(System.nanoTime() < deadline, "in time: " + what);
        System.out.println(what);
    }

    private interface Step {
        void run() throws Exception;
    }

    private static void fails(String exception, Step step) throws Exception {
        try {
            step.run();
        } catch (ExecutionException e) {
            check(e.getCause().getClass().getSimpleName().equals(exception), exception + ", not " + e.getCause());
            return;
        }
        check(false, exception);
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            System.err.println("does not hold: " + what);
            System.exit(1);
        }
    }
}
