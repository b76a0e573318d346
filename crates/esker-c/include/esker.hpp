/* Esker for C++17: a thin layer over esker.h.
 *
 * - A handle frees itself, and moves but does not copy. Free a Db last.
 * - A call that fails throws esker::Error. What may be missing is a std::optional.
 * - Keys and values are std::string_view, of any bytes.
 */
#ifndef ESKER_HPP
#define ESKER_HPP

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "esker.h"

namespace esker {

/* A call that failed. */
class Error : public std::runtime_error {
public:
    explicit Error(esker_status status, const esker_error *error)
        : std::runtime_error(error != nullptr ? esker_error_text(error) : esker_status_name(status)),
          status_(status) {
        const char *file = esker_error_file(error);
        if (file != nullptr) file_ = file;
        std::uint64_t offset = 0;
        if (esker_error_offset(error, &offset)) offset_ = offset;
    }

    esker_status status() const { return status_; }
    /* The file or directory that the error is about, or "". */
    const std::string &file() const { return file_; }
    /* The position of damage in the file. */
    std::optional<std::uint64_t> offset() const { return offset_; }

private:
    esker_status status_;
    std::string file_;
    std::optional<std::uint64_t> offset_;
};

namespace detail {

inline esker_slice slice(std::string_view bytes) {
    /* A view without a place is empty, but not absent. */
    return esker_bytes(bytes.data() != nullptr ? bytes.data() : "", bytes.size());
}

inline esker_slice slice(const std::optional<std::string_view> &bytes) {
    return bytes ? slice(*bytes) : esker_none();
}

inline esker_range range(std::optional<std::string_view> start, std::optional<std::string_view> end) {
    return esker_range_of(slice(start), slice(end));
}

inline std::string_view view(esker_slice bytes) {
    return {reinterpret_cast<const char *>(bytes.data), bytes.len};
}

/* Runs a call, and returns whether it found what it looked for. */
template <class Call> bool found(Call call) {
    esker_error *error = nullptr;
    const auto status = static_cast<esker_status>(call(&error));
    if (status == ESKER_OK) return true;
    if (status == ESKER_NOT_FOUND || status == ESKER_NOT_SWAPPED) return false;
    const Error failure(status, error);
    esker_error_free(error);
    throw failure;
}

template <auto Free> struct Freer {
    template <class T> void operator()(T *handle) const { Free(handle); }
};

template <class T, auto Free> using Handle = std::unique_ptr<T, Freer<Free>>;

inline void close(esker_db *db) { esker_close(db, nullptr); }

} // namespace detail

/* A value, which the library lends until this object ends. */
class Value {
public:
    explicit Value(esker_value value) : value_(value) {}
    Value(Value &&other) noexcept : value_(std::exchange(other.value_, esker_value{nullptr, 0, nullptr})) {}
    Value &operator=(Value &&other) noexcept {
        std::swap(value_, other.value_);
        return *this;
    }
    ~Value() { esker_value_free(&value_); }

    std::string_view view() const { return {reinterpret_cast<const char *>(value_.data), value_.len}; }
    operator std::string_view() const { return view(); }
    std::string str() const { return std::string(view()); }

private:
    esker_value value_;
};

/* A transaction, a snapshot or a batch: see esker_begin. */
class Txn {
public:
    explicit Txn(esker_txn *lent) : lent_(lent) {}
    explicit Txn(detail::Handle<esker_txn, esker_txn_free> own) : own_(std::move(own)), lent_(own_.get()) {}

    /* Commits, and returns the number of the commit. */
    std::uint64_t commit(std::uint32_t durability = ESKER_DURABILITY_DEFAULT) {
        std::uint64_t seqno = 0;
        detail::found([&](esker_error **error) { return esker_commit(lent_, durability, &seqno, error); });
        return seqno;
    }
    std::uint64_t savepoint() {
        std::uint64_t point = 0;
        detail::found([&](esker_error **error) { return esker_savepoint(lent_, &point, error); });
        return point;
    }
    void rollback_to(std::uint64_t point) {
        detail::found([&](esker_error **error) { return esker_rollback_to(lent_, point, error); });
    }
    esker_txn *get() const { return lent_; }

private:
    detail::Handle<esker_txn, esker_txn_free> own_;
    esker_txn *lent_;
};

/* A walk in one direction: `for (auto [key, value] : keyspace.range("a", "b"))`. The entries are lent for one step. */
class Range {
public:
    using Entry = std::pair<std::string_view, std::string_view>;
    struct End {};
    class Step {
    public:
        explicit Step(esker_iter *iter) : iter_(iter) { ++*this; }
        const Entry &operator*() const { return *entry_; }
        Step &operator++() {
            esker_slice key, value;
            if (detail::found([&](esker_error **error) { return esker_iter_next(iter_, &key, &value, error); })) {
                entry_.emplace(detail::view(key), detail::view(value));
            } else {
                entry_.reset();
            }
            return *this;
        }
        bool operator!=(End) const { return entry_.has_value(); }

    private:
        esker_iter *iter_;
        std::optional<Entry> entry_;
    };

    explicit Range(esker_iter *iter) : iter_(iter) {}
    Step begin() { return Step(iter_.get()); }
    End end() const { return {}; }

private:
    detail::Handle<esker_iter, esker_iter_free> iter_;
};

/* A named, ordered map. Each read and write takes a transaction, or none for the newest state and for a commit of its
 * own. */
class Keyspace {
public:
    explicit Keyspace(esker_keyspace *keyspace) : keyspace_(keyspace) {}

    std::optional<Value> get(std::string_view key, const Txn *txn = nullptr) const {
        esker_value value;
        const bool is_there = detail::found([&](esker_error **error) {
            return esker_get(get(), of(txn), detail::slice(key), &value, error);
        });
        if (!is_there) return std::nullopt;
        return std::make_optional<Value>(Value(value));
    }
    bool contains(std::string_view key, const Txn *txn = nullptr) const {
        return detail::found(
            [&](esker_error **error) { return esker_contains(get(), of(txn), detail::slice(key), error); });
    }
    std::uint64_t size(const Txn *txn = nullptr) const {
        std::uint64_t count = 0;
        detail::found([&](esker_error **error) { return esker_len(get(), of(txn), &count, error); });
        return count;
    }
    /* The entries from `start` on, below `end`. */
    Range range(std::optional<std::string_view> start = {}, std::optional<std::string_view> end = {},
                std::uint32_t flags = 0, const Txn *txn = nullptr) const {
        esker_iter *iter = nullptr;
        detail::found([&](esker_error **error) {
            return esker_iter_new(get(), of(txn), detail::range(start, end), flags, &iter, error);
        });
        return Range(iter);
    }
    Range prefix(std::string_view prefix, std::uint32_t flags = 0, const Txn *txn = nullptr) const {
        esker_iter *iter = nullptr;
        detail::found([&](esker_error **error) {
            return esker_iter_prefix(get(), of(txn), detail::slice(prefix), flags, &iter, error);
        });
        return Range(iter);
    }

    void put(std::string_view key, std::string_view value, Txn *txn = nullptr) {
        detail::found([&](esker_error **error) {
            return esker_put(get(), of(txn), detail::slice(key), detail::slice(value), error);
        });
    }
    void put_with_ttl(std::string_view key, std::string_view value, std::uint64_t milliseconds, Txn *txn = nullptr) {
        detail::found([&](esker_error **error) {
            return esker_put_with_ttl(get(), of(txn), detail::slice(key), detail::slice(value), milliseconds, error);
        });
    }
    /* Lets a key expire after some time, from now on. Returns whether the key exists. */
    bool expire(std::string_view key, std::uint64_t milliseconds, Txn *txn = nullptr) {
        return detail::found([&](esker_error **error) {
            return esker_expire(get(), of(txn), detail::slice(key), milliseconds, error);
        });
    }
    /* Lets a key live until it is removed. Returns whether the key exists. */
    bool persist(std::string_view key, Txn *txn = nullptr) { return expire(key, UINT64_MAX, txn); }
    void merge(std::string_view key, std::string_view operand, Txn *txn = nullptr) {
        detail::found([&](esker_error **error) {
            return esker_merge(get(), of(txn), detail::slice(key), detail::slice(operand), error);
        });
    }
    void erase(std::string_view key, Txn *txn = nullptr) {
        detail::found(
            [&](esker_error **error) { return esker_delete(get(), of(txn), detail::slice(key), error); });
    }
    void erase_range(std::optional<std::string_view> start, std::optional<std::string_view> end, Txn *txn = nullptr) {
        detail::found([&](esker_error **error) {
            return esker_delete_range(get(), of(txn), detail::range(start, end), error);
        });
    }
    /* Adds to a number, and returns the number before: see esker_fetch_add. */
    std::int64_t fetch_add(std::string_view key, std::int64_t add, Txn *txn = nullptr) {
        std::int64_t old = 0;
        detail::found([&](esker_error **error) {
            return esker_fetch_add(get(), of(txn), detail::slice(key), add, &old, error);
        });
        return old;
    }
    /* Sets a key to a value, or removes it, if it has the expected value or none. Returns whether it did. */
    bool compare_and_swap(std::string_view key, std::optional<std::string_view> expected,
                          std::optional<std::string_view> value, Txn *txn = nullptr) {
        return detail::found([&](esker_error **error) {
            esker_swap swap{detail::slice(expected), detail::slice(value)};
            return esker_compare_and_swap(get(), of(txn), detail::slice(key), swap, nullptr, error);
        });
    }
    void set_merge_operator(const std::string &name) {
        detail::found([&](esker_error **error) {
            return esker_keyspace_set_merge_operator(get(), name.c_str(), error);
        });
    }
    esker_keyspace *get() const { return keyspace_.get(); }

private:
    static esker_txn *of(const Txn *txn) { return txn != nullptr ? txn->get() : nullptr; }

    detail::Handle<esker_keyspace, esker_keyspace_free> keyspace_;
};

/* How a database is opened: set what esker.h has for `get()`. */
class Options {
public:
    Options() : options_(esker_options_new()) {}
    Options &memory(std::uint64_t bytes) {
        esker_options_set_memory(get(), bytes);
        return *this;
    }
    Options &read_only(bool yes = true) {
        esker_options_set_read_only(get(), yes);
        return *this;
    }
    esker_options *get() const { return options_.get(); }

private:
    detail::Handle<esker_options, esker_options_free> options_;
};

/* An open database. */
class Db {
public:
    explicit Db(const std::string &path, const Options &options = {}) {
        esker_db *db = nullptr;
        detail::found([&](esker_error **error) { return esker_open(path.c_str(), options.get(), &db, error); });
        db_.reset(db);
    }
    static Db in_memory(const Options &options = {}) {
        esker_db *db = nullptr;
        detail::found([&](esker_error **error) { return esker_open_in_memory(options.get(), &db, error); });
        return Db(db);
    }

    /* The keyspace of a name, which is created if it is missing. */
    Keyspace keyspace(const std::string &name) const {
        esker_keyspace *keyspace = nullptr;
        detail::found(
            [&](esker_error **error) { return esker_keyspace_open(get(), name.c_str(), &keyspace, error); });
        return Keyspace(keyspace);
    }
    Txn begin(std::uint32_t kind = ESKER_TXN_DEFAULT) const {
        esker_txn *txn = nullptr;
        detail::found([&](esker_error **error) { return esker_begin(get(), kind, &txn, error); });
        return Txn(detail::Handle<esker_txn, esker_txn_free>(txn));
    }
    Txn snapshot() const { return begin(ESKER_TXN_READ_ONLY); }
    Txn batch() const { return begin(ESKER_TXN_WRITE_ONLY); }

    /* Runs a function in a transaction and commits it; after a conflict again in another one. What the function
     * throws rolls back, and is thrown. */
    void transact(const std::function<void(Txn &)> &body, std::uint32_t kind = ESKER_TXN_DEFAULT) const {
        struct Run {
            const std::function<void(Txn &)> &body;
            std::exception_ptr thrown;
        } run{body, nullptr};
        const auto step = [](void *context, esker_txn *lent) -> std::int32_t {
            auto &run = *static_cast<Run *>(context);
            run.thrown = nullptr;
            try {
                Txn txn(lent);
                run.body(txn);
                return ESKER_OK;
            } catch (const Error &error) {
                run.thrown = std::current_exception();
                return error.status();
            } catch (...) {
                run.thrown = std::current_exception();
                return ESKER_OTHER;
            }
        };
        try {
            detail::found([&](esker_error **error) { return esker_transact(get(), kind, step, &run, error); });
        } catch (const Error &) {
            if (run.thrown) std::rethrow_exception(run.thrown);
            throw;
        }
    }

    void sync() const {
        detail::found([&](esker_error **error) { return esker_sync(get(), error); });
    }
    void checkpoint(const std::string &directory) const {
        detail::found([&](esker_error **error) { return esker_checkpoint(get(), directory.c_str(), error); });
    }
    /* Closes the database, and says so if that fails, which the destructor cannot. */
    void close() {
        esker_db *db = db_.release();
        detail::found([&](esker_error **error) { return esker_close(db, error); });
    }
    esker_db *get() const { return db_.get(); }

private:
    explicit Db(esker_db *db) : db_(db) {}

    detail::Handle<esker_db, detail::close> db_;
};

} // namespace esker

#endif
