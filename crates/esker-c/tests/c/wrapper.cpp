// esker.hpp, in a database in the directory argv[1].
#include "esker.hpp"

#include <cstdio>
#include <cstdlib>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

int main(int, char **argv) {
    esker::Db db(argv[1], esker::Options().memory(16 << 20));
    auto fruit = db.keyspace("fruit");
    fruit.put("apple", "30");
    fruit.put("pear", "");
    fruit.put_with_ttl("plum", "5", 60000);
    CHECK(fruit.get("apple")->view() == "30" && fruit.get("pear")->view().empty() && !fruit.get("fig"));
    CHECK(fruit.size() == 3 && fruit.contains("plum"));
    std::string seen;
    for (auto [key, value] : fruit.range("b", std::nullopt, ESKER_ITER_REVERSE)) {
        seen.append(key).append("=").append(value).append(" ");
    }
    CHECK(seen == "plum=5 pear= ");

    auto snapshot = db.snapshot();
    int runs = 0;
    db.transact([&](esker::Txn &txn) {
        ++runs;
        CHECK(fruit.get("apple", &txn)->view() == "30" || runs == 2);
        if (runs == 1) fruit.put("apple", "31");
        fruit.put("apple", "32", &txn);
    });
    CHECK(runs == 2 && fruit.get("apple")->str() == "32" && fruit.get("apple", &snapshot)->view() == "30");
    try {
        db.transact([&](esker::Txn &txn) {
            fruit.erase("apple", &txn);
            throw std::string("no");
        });
        CHECK(false);
    } catch (const std::string &text) {
        CHECK(text == "no" && fruit.contains("apple"));
    }
    auto batch = db.batch();
    fruit.erase_range("p", "q", &batch);
    fruit.put("fig", "1", &batch);
    CHECK(batch.commit() > 0 && fruit.size() == 2);
    db.transact([&](esker::Txn &txn) {
        CHECK(fruit.compare_and_swap("fig", "1", "2", &txn) && fruit.get("fig")->view() == "1");
        CHECK(!fruit.compare_and_swap("fig", "1", "3", &txn) && fruit.compare_and_swap("fig", "2", "1", &txn));
    });
    fruit.put("ripe", "1");
    CHECK(fruit.expire("ripe", 60000) && fruit.persist("ripe") && !fruit.expire("none", 1));
    CHECK(fruit.expire("ripe", 0) && !fruit.get("ripe") && !fruit.persist("ripe"));
    CHECK(fruit.fetch_add("n", 5) == 0 && fruit.fetch_add("n", 5) == 5 && !fruit.compare_and_swap("fig", "2", "3"));
    CHECK(fruit.compare_and_swap("fig", "1", std::nullopt) && !fruit.contains("fig"));
    try {
        esker::Db again(argv[1]);
        CHECK(false);
    } catch (const esker::Error &error) {
        CHECK(error.status() == ESKER_LOCKED && !error.file().empty() && !error.offset());
    }
    std::puts("ok");
}
