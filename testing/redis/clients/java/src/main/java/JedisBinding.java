import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import redis.clients.jedis.Jedis;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.Status;
import site.ycsb.StringByteIterator;

/** YCSB over Jedis: a record is a hash, and a sorted set has all keys in order, for scans. */
public final class JedisBinding extends DB {
  private static final String INDEX = "index";
  private Jedis jedis;

  @Override
  public void init() {
    jedis = new Jedis("127.0.0.1", Integer.parseInt(getProperties().getProperty("port")));
  }

  @Override
  public void cleanup() {
    jedis.close();
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    Map<String, String> found = jedis.hgetAll(key);
    Collection<String> wanted = fields == null ? found.keySet() : fields;
    for (String field : wanted) {
      result.put(field, new StringByteIterator(found.get(field)));
    }
    return found.isEmpty() ? Status.NOT_FOUND : Status.OK;
  }

  @Override
  public Status scan(
      String table, String from, int count, Set<String> fields, Vector<HashMap<String, ByteIterator>> result) {
    for (String key : jedis.zrangeByLex(INDEX, "[" + from, "+", 0, count)) {
      HashMap<String, ByteIterator> record = new HashMap<>();
      read(table, key, fields, record);
      result.add(record);
    }
    return result.isEmpty() ? Status.NOT_FOUND : Status.OK;
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    jedis.hset(key, StringByteIterator.getStringMap(values));
    return Status.OK;
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    update(table, key, values);
    jedis.zadd(INDEX, 0, key);
    return Status.OK;
  }

  @Override
  public Status delete(String table, String key) {
    return jedis.del(key) == 1 && jedis.zrem(INDEX, key) == 1 ? Status.OK : Status.NOT_FOUND;
  }
}
