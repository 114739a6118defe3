// What programs do with go-redis, against a server at the port that is given.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

func check(is bool, what string) {
	if !is {
		panic(what)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func smoke(ctx context.Context, rdb *redis.Client) {
	must(rdb.FlushAll(ctx).Result())
	must(rdb.Set(ctx, "s", "v", time.Hour).Result())
	check(must(rdb.Get(ctx, "s").Result()) == "v", "get")
	_, err := rdb.Get(ctx, "nothing").Result()
	check(errors.Is(err, redis.Nil), "nil")
	check(!must(rdb.SetNX(ctx, "s", "w", 0).Result()), "setnx")
	check(must(rdb.HSet(ctx, "h", "f", 1, "g", 2).Result()) == 2, "hset")
	check(must(rdb.HGetAll(ctx, "h").Result())["g"] == "2", "hgetall")
	must(rdb.ZAdd(ctx, "z", redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2.5, Member: "b"}).Result())
	members := must(rdb.ZRangeWithScores(ctx, "z", 0, -1).Result())
	check(len(members) == 2 && members[1].Score == 2.5, "zrange")

	replies := must(rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := 0; i < 1000; i++ {
			p.Set(ctx, fmt.Sprint("p:", i), i, 0)
		}
		return nil
	}))
	check(len(replies) == 1000, "pipeline")
	found := 0
	for keys := rdb.Scan(ctx, 0, "p:*", 100).Iterator(); keys.Next(ctx); {
		found++
	}
	check(found == 1000, "scan")

	var group sync.WaitGroup
	for i := 0; i < 8; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				err := rdb.Watch(ctx, func(tx *redis.Tx) error {
					former, err := tx.Get(ctx, "counter").Int()
					if err != nil && !errors.Is(err, redis.Nil) {
						return err
					}
					_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
						p.Set(ctx, "counter", former+1, 0)
						return nil
					})
					return err
				}, "counter")
				if !errors.Is(err, redis.TxFailedErr) {
					check(err == nil, "transaction")
					return
				}
			}
		}()
	}
	group.Wait()
	check(must(rdb.Get(ctx, "counter").Int()) == 8, "counter")

	raise := redis.NewScript("return redis.call('incrby', KEYS[1], ARGV[1])")
	check(must(raise.Run(ctx, rdb, []string{"n"}, 4).Int()) == 4, "script")
	check(must(raise.Run(ctx, rdb, []string{"n"}, 4).Int()) == 8, "script again")
	err = rdb.LPush(ctx, "s", "x").Err()
	check(err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE"), "wrong type")

	subscription := rdb.Subscribe(ctx, "news")
	defer subscription.Close()
	must(subscription.Receive(ctx))
	must(rdb.Publish(ctx, "news", "hello").Result())
	check((<-subscription.Channel()).Payload == "hello", "message")
	go func() { rdb.RPush(ctx, "queue", "job") }()
	check(must(rdb.BLPop(ctx, 20*time.Second, "queue").Result())[1] == "job", "blpop")
}

func main() {
	ctx := context.Background()
	for _, protocol := range []int{2, 3} {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1], Protocol: protocol})
		smoke(ctx, rdb)
		rdb.Close()
	}
	fmt.Println("go-redis")
}
