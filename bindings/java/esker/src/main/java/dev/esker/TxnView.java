package dev.esker;

/** A keyspace in a transaction, snapshot or batch. */
final class TxnView extends View {
    TxnView(Keyspace keyspace, Handle txn, Object owner) {
        super(keyspace.keyspace, txn, new Object[] {keyspace, owner});
    }

    @Override
    Handle parent() {
        return txn;
    }
}
