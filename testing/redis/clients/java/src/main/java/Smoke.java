import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisDataException;
import site.ycsb.DB;
import site.ycsb.Workload;
import site.ycsb.measurements.Measurements;
import site.ycsb.workloads.CoreWorkload;

/** What programs do with Jedis, and YCSB's workloads A to F with each value that is read checked. */
public final class Smoke {
  private static final int RECORDS = 1000;
  private static final int OPERATIONS = 2000;
  private static final int THREADS = 4;

  private static void check(boolean is, String what) {
    if (!is) {
      throw new AssertionError(what);
    }
  }

  private static void basics(int port) {
    try (Jedis jedis = new Jedis("127.0.0.1", port)) {
      jedis.flushAll();
      check(jedis.set("s", "v").equals("OK") && jedis.get("s").equals("v"), "strings");
      check(jedis.hset("h", Map.of("f", "1", "g", "2")) == 2 && jedis.hgetAll("h").get("g").equals("2"), "hashes");
      check(jedis.zadd("z", Map.of("a", 1.0, "b", 2.5)) == 2 && jedis.zscore("z", "b") == 2.5, "sorted sets");
      Transaction transaction = jedis.multi();
      transaction.incr("n");
      transaction.rpush("l", "a", "b");
      check(transaction.exec().equals(List.of(1L, 2L)), "transactions");
      check(jedis.eval("return redis.call('incrby', KEYS[1], ARGV[1])", 1, "n", "4").equals(5L), "scripts");
      try {
        jedis.lpush("s", "x");
        throw new AssertionError("an error was expected");
      } catch (JedisDataException error) {
        check(error.getMessage().startsWith("WRONGTYPE"), error.getMessage());
      }
      jedis.flushAll();
    }
  }

  private interface Step {
    void run(DB db, Object state) throws Exception;
  }

  private static void inThreads(Properties properties, Workload workload, Step step) throws Exception {
    AtomicReference<Throwable> failure = new AtomicReference<>();
    Thread[] threads = new Thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
      int number = i;
      threads[i] = new Thread(() -> {
        try {
          JedisBinding db = new JedisBinding();
          db.setProperties(properties);
          db.init();
          step.run(db, workload.initThread(properties, number, THREADS));
          db.cleanup();
        } catch (Throwable error) {
          failure.set(error);
        }
      });
      threads[i].start();
    }
    for (Thread thread : threads) {
      thread.join();
    }
    if (failure.get() != null) {
      throw new AssertionError(failure.get());
    }
  }

  private static void workload(int port, String name, String... settings) throws Exception {
    Properties properties = new Properties();
    properties.setProperty("port", String.valueOf(port));
    properties.setProperty("recordcount", String.valueOf(RECORDS));
    properties.setProperty("operationcount", String.valueOf(OPERATIONS));
    properties.setProperty("dataintegrity", "true");
    properties.setProperty("fieldlengthdistribution", "constant");
    for (int i = 0; i < settings.length; i += 2) {
      properties.setProperty(settings[i], settings[i + 1]);
    }
    Measurements.setProperties(properties);
    try (Jedis jedis = new Jedis("127.0.0.1", port)) {
      jedis.flushAll();
    }
    CoreWorkload workload = new CoreWorkload();
    workload.init(properties);
    AtomicLong left = new AtomicLong(RECORDS);
    inThreads(properties, workload, (db, state) -> {
      while (left.getAndDecrement() > 0) {
        check(workload.doInsert(db, state), name + ": insert");
      }
    });
    left.set(OPERATIONS);
    inThreads(properties, workload, (db, state) -> {
      while (left.getAndDecrement() > 0) {
        check(workload.doTransaction(db, state), name + ": operation");
      }
    });
    String summary = Measurements.getMeasurements().getSummary();
    check(!summary.contains("UNEXPECTED_STATE") && !summary.contains("ERROR"), name + ": " + summary);
    System.out.println("YCSB " + name);
  }

  public static void main(String[] arguments) throws Exception {
    int port = Integer.parseInt(arguments[0]);
    basics(port);
    String zipfian = "zipfian";
    workload(port, "A", "readproportion", "0.5", "updateproportion", "0.5", "requestdistribution", zipfian);
    workload(port, "B", "readproportion", "0.95", "updateproportion", "0.05", "requestdistribution", zipfian);
    workload(port, "C", "readproportion", "1", "updateproportion", "0", "requestdistribution", zipfian);
    workload(port, "D", "readproportion", "0.95", "updateproportion", "0", "insertproportion", "0.05",
        "requestdistribution", "latest");
    workload(port, "E", "readproportion", "0", "updateproportion", "0", "scanproportion", "0.95", "insertproportion",
        "0.05", "requestdistribution", zipfian, "maxscanlength", "20");
    workload(port, "F", "readproportion", "0.5", "updateproportion", "0", "readmodifywriteproportion", "0.5",
        "requestdistribution", zipfian);
    System.out.println("Jedis");
  }
}
