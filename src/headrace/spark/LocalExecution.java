package headrace;

import java.io.FileOutputStream;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.Partition;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.memory.SparkOutOfMemoryError;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.plans.physical.BroadcastMode;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CoalesceExec;
import org.apache.spark.sql.execution.LocalTableScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.execution.exchange.ShuffleOrigin;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SparkUncaughtExceptionHandler;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/**
 * Runs a physical plan over few rows in the calling thread. A Spark job would cost more than the rows: its closures are cleaned,
 * serialized and sent to a task, and every broadcast is a separate job. The operators are Spark's own, with the same task context as
 * in a job.
 */
public class LocalExecution {
    /** Operators that only read the partitions of their children. All others need a job. */
    private static final Set LOCAL = new HashSet(Arrays.asList(new String[] {
        "BroadcastHashJoinExec", "BroadcastNestedLoopJoinExec", "CartesianProductExec", "CoalesceExec", "ExpandExec", "FilterExec",
        "GenerateExec", "GlobalLimitExec", "HashAggregateExec", "InputAdapter", "LocalLimitExec", "LocalTableScanExec",
        "ObjectHashAggregateExec", "OneRowRelationExec", "ProjectExec", "RDDScanExec", "ShuffledHashJoinExec", "SortAggregateExec",
        "SortExec", "SortMergeJoinExec", "UnionExec", "WholeStageCodegenExec", "WindowExec", "WindowGroupLimitExec"
    }));

    /** Operators that shuffle their child internally, unless it has one partition. */
    private static final Set LOCAL_IN_ONE_PARTITION =
        new HashSet(Arrays.asList(new String[] {"CollectLimitExec", "TakeOrderedAndProjectExec"}));

    /** Spark's default. */
    private static final long ROWS_PER_BATCH = 10000L;

    /** Task ids, by which Spark allocates memory. Ids of jobs count up from 0; -1 and -1024 mean threads without a task. */
    private static final AtomicLong LAST_TASK = new AtomicLong(-1000000L);

    /** Return the plan in the form that `writeArrow` runs, or null if it needs jobs. */
    public static SparkPlan localForm(SparkPlan plan) {
        return localForm(plan, new IdentityHashMap());
    }

    private static SparkPlan localForm(SparkPlan plan, Map done) {
        if (done.containsKey(plan)) return (SparkPlan) done.get(plan);
        SparkPlan local;
        if (plan instanceof ReusedExchangeExec) {
            ReusedExchangeExec reused = (ReusedExchangeExec) plan;
            SparkPlan child = localForm(reused.child(), done);
            local = child == null ? null : new ReusedExchangeExec(reused.output(), (Exchange) child);
        } else {
            local = withLocalChildren(plan, done);
        }
        done.put(plan, local);
        return local;
    }

    private static SparkPlan withLocalChildren(SparkPlan plan, Map done) {
        ArrayList children = new ArrayList();
        Iterator each = plan.children().iterator();
        while (each.hasNext()) {
            SparkPlan child = localForm((SparkPlan) each.next(), done);
            if (child == null) return null;
            children.add(child);
        }
        if (plan instanceof BroadcastExchangeExec) {
            return new LocalBroadcast(((BroadcastExchangeExec) plan).mode(), (SparkPlan) children.get(0), null);
        }
        if (plan instanceof ShuffleExchangeExec) {
            ShuffleExchangeExec shuffle = (ShuffleExchangeExec) plan;
            if (shuffle.outputPartitioning().numPartitions() != 1) return null;
            return new LocalShuffle(
                shuffle.outputPartitioning(), (SparkPlan) children.get(0), shuffle.shuffleOrigin(), shuffle.advisoryPartitionSize()
            );
        }
        String name = plan.getClass().getSimpleName();
        boolean isLocal = LOCAL.contains(name);
        if (LOCAL_IN_ONE_PARTITION.contains(name)) {
            isLocal = ((SparkPlan) children.get(0)).outputPartitioning().numPartitions() == 1;
        }
        return isLocal ? (SparkPlan) plan.withNewChildren(CollectionConverters.asScala(children).toList()) : null;
    }

    /** Compute a plan in its local form, and write its rows to a file: an Arrow stream for each batch. */
    public static void writeArrow(SparkPlan plan, SparkSession session, StructType schema, String path) throws Throwable {
        OutputStream file = new FileOutputStream(path);
        try {
            new ArrowFile(schema, file).read(plan, session);
        } finally {
            file.close();
        }
    }

    /** Consumes the rows of each partition of a plan. */
    private abstract static class Reader {
        public void read(SparkPlan plan, SparkSession session) throws Throwable {
            RDD rows = plan.execute();
            Partition[] partitions = rows.partitions();
            for (int i = 0; i < partitions.length; i++) read(rows, partitions[i], partitions.length, session);
        }

        private void read(RDD rows, Partition partition, int partitions, SparkSession session) throws Throwable {
            SparkEnv env = SparkEnv.get();
            long id = LAST_TASK.decrementAndGet();
            TaskMemoryManager memory = new TaskMemoryManager(env.memoryManager(), id);
            TaskContextImpl task = new TaskContextImpl(
                0, 0, partition.index(), id, 0, partitions, memory, settingsOf(session), env.metricsSystem(), TaskMetrics.empty(), 1,
                scala.collection.immutable.Map$.MODULE$.empty()
            );
            Throwable failure = null;
            env.blockManager().registerTask(id); // it may have to evict cached blocks, which it locks
            TaskContext$.MODULE$.setTaskContext(task);
            try {
                take(rows.iterator(partition, task));
            } catch (Throwable error) {
                failure = error;
                task.markTaskFailed(error);
                throw error;
            } finally {
                try {
                    task.markTaskCompleted(Option.apply(failure));
                } finally {
                    TaskContext$.MODULE$.unset();
                    memory.cleanUpAllAllocatedMemory();
                    env.blockManager().releaseAllLocksForTask(id);
                    endIfOutOfMemory(failure);
                }
            }
        }

        abstract void take(Iterator rows) throws Throwable;
    }

    private static class ArrowFile extends Reader {
        private final StructType schema;
        private final OutputStream file;

        ArrowFile(StructType schema, OutputStream file) {
            this.schema = schema;
            this.file = file;
        }

        void take(Iterator rows) throws Throwable {
            Iterator batches = (Iterator) (Object) ArrowConverters$.MODULE$.toBatchWithSchemaIterator(
                rows, this.schema, ROWS_PER_BATCH, Long.MAX_VALUE, "UTC", true, false
            );
            while (batches.hasNext()) this.file.write((byte[]) batches.next());
        }
    }

    private static class Copies extends Reader {
        final ArrayList rows = new ArrayList();

        void take(Iterator rows) {
            while (rows.hasNext()) this.rows.add(((InternalRow) rows.next()).copy());
        }
    }

    /** Return the settings that operators read from their task, as in a job. */
    private static Properties settingsOf(SparkSession session) {
        Properties settings = new Properties();
        Iterator each = session.sessionState().conf().getAllConfs().iterator();
        while (each.hasNext()) {
            Tuple2 setting = (Tuple2) each.next();
            if (((String) setting._1()).startsWith("spark")) settings.setProperty((String) setting._1(), (String) setting._2());
        }
        return settings;
    }

    /** End the process if its heap is full, as Spark does for a task: its state is no longer reliable. */
    private static void endIfOutOfMemory(Throwable failure) {
        if (failure instanceof OutOfMemoryError && !(failure instanceof SparkOutOfMemoryError)) {
            new SparkUncaughtExceptionHandler(true).uncaughtException(Thread.currentThread(), failure);
        }
    }

    /** Puts all rows of its child into one partition, like a shuffle into one partition. */
    public static class LocalShuffle extends ShuffleExchangeExec {
        public LocalShuffle(Partitioning partitioning, SparkPlan child, ShuffleOrigin origin, Option size) {
            super(partitioning, child, origin, size);
        }

        /** Spark does not replace an operator of a plan with an equal one. */
        public boolean equals(Object other) {
            return this == other;
        }

        public int hashCode() {
            return System.identityHashCode(this);
        }

        public RDD doExecute() {
            return new CoalesceExec(1, (SparkPlan) this.child()).execute();
        }

        public ShuffleExchangeExec withNewChildInternal(SparkPlan child) {
            return new LocalShuffle(this.outputPartitioning(), child, this.shuffleOrigin(), this.advisoryPartitionSize());
        }
    }

    /** A broadcast whose child is computed in the calling thread, by `evaluated`, and that is not sent to executors. */
    public static class LocalBroadcast extends BroadcastExchangeExec {
        private final transient Broadcast held;

        public LocalBroadcast(BroadcastMode mode, SparkPlan child, Broadcast held) {
            super(mode, child);
            this.held = held;
        }

        /** Spark does not replace an operator of a plan with an equal one. */
        public boolean equals(Object other) {
            return this == other;
        }

        public int hashCode() {
            return System.identityHashCode(this);
        }

        /** Compute the rows. The result drops the child's plan, which Spark would serialize with every join that reads it. */
        public LocalBroadcast evaluated(SparkSession session) throws Throwable {
            SparkPlan child = (SparkPlan) this.child();
            Copies copies = new Copies();
            copies.read(child, session);
            Option count = Option.apply((Object) Long.valueOf((long) copies.rows.size()));
            Object relation = this.mode().transform(CollectionConverters.asScala(copies.rows.iterator()), count);
            SparkPlan columns = new LocalTableScanExec(child.output(), (Seq) (Object) Nil$.MODULE$, Option.empty());
            return new LocalBroadcast(this.mode(), columns, new Held(relation));
        }

        public void doPrepare() {}

        public Broadcast doExecuteBroadcast() {
            return this.held;
        }

        public BroadcastExchangeExec withNewChildInternal(SparkPlan child) {
            return new LocalBroadcast(this.mode(), child, null);
        }
    }

    /** A value that stays in this process. Spark test-serializes the closures of joins, so serialization skips the value. */
    public static class Held extends Broadcast {
        private final transient Object kept;

        public Held(Object kept) {
            super(-1L, ClassTag$.MODULE$.apply(Object.class));
            this.kept = kept;
        }

        public Object getValue() {
            return this.kept;
        }

        public void doUnpersist(boolean blocking) {}

        public void doDestroy(boolean blocking) {}
    }
}
