import org.apache.kafka.server.common.MetadataVersion;

/** Prints each protocol level with the versions of Fetch, ListOffsets and OffsetForLeaderEpoch that it settles. */
public class ProtocolLevels {
    public static void main(String[] arguments) {
        for (MetadataVersion level : MetadataVersion.VERSIONS) {
            System.out.printf(
                "%s %s %d %d %d%n",
                level.version(),
                level.shortVersion(),
                level.fetchRequestVersion(),
                level.listOffsetRequestVersion(),
                level.offsetForLeaderEpochRequestVersion());
        }
    }
}
