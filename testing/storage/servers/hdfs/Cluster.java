import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** An HDFS of one NameNode and one DataNode on loopback: arguments are the NameNode's port and a folder. Ends with its standard input. */
public class Cluster {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setBoolean("dfs.permissions.enabled", false);
        configuration.setInt("dfs.replication", 1);
        configuration.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, new File(arguments[1]).getAbsolutePath());
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration)
            .nameNodePort(Integer.parseInt(arguments[0]))
            .numDataNodes(1)
            .build();
        cluster.waitActive();
        System.out.println("ready");
        System.out.flush();
        while (System.in.read() >= 0) {}
        cluster.shutdown(true);
        System.exit(0);
    }
}
