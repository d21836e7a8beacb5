package headrace;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LocalTableScanExec;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractPartialFunction;

/**
 * A query that is planned once on placeholders. Each run substitutes rows for them in a copy of the physical plan.
 *
 * A query that reads the clock, or has a scalar subquery, is analysed once and planned for each run: its physical plan contains the
 * time, or the result of the subquery.
 */
public class PreparedQuery {
    /** The row count that the planner assumes for a placeholder: so few rows that Spark broadcasts them in a join. */
    private static final long PLANNED_BYTES = 100000L;

    /**
     * The maximum number of rows of a relation whose broadcast is cached for the next run: the size of a small lookup, which builds
     * pass to Spark once. Larger relations differ in each build, and caching them would waste memory.
     */
    private static final int MOST_KEPT_ROWS = 2000;

    private static final Logger LOG = LoggerFactory.getLogger("headrace.PreparedQuery");

    private SparkSession session;
    private LogicalPlan analyzed;
    private SparkPlan plan;
    private SparkPlan localPlan;
    private Encoder encoder;
    private final ArrayList placeholders = new ArrayList();

    /** For each broadcast of the plan: the rows that it last read, and its copy that has broadcast them. */
    private final Map broadcasts = new IdentityHashMap();

    /** Return a placeholder relation with this schema and no rows. */
    public Dataset placeholder(SparkSession session, String schema) {
        Seq output = (Seq) (Object) DataTypeUtils.toAttributes((StructType) DataType.fromJson(schema));
        Statistics few = new Statistics(
            scala.math.BigInt.apply(PLANNED_BYTES), Option.empty(), Statistics.$lessinit$greater$default$3(), false
        );
        LogicalPlan leaf = new LogicalRDD(
            output, new Placeholder(session.sparkContext()), new UnknownPartitioning(0), (Seq) (Object) Nil$.MODULE$, false,
            Option.empty(), session, Option.apply(few), Option.empty()
        );
        return Dataset.ofRows(session, leaf);
    }

    /** Return the id of a placeholder relation. */
    public int idOf(Dataset relation) {
        return ((LogicalRDD) relation.logicalPlan()).rdd().id();
    }

    /** Plan a frame's query. */
    public PreparedQuery prepare(Dataset frame) {
        QueryExecution execution = frame.queryExecution();
        PreparedQuery prepared = new PreparedQuery();
        prepared.session = (SparkSession) frame.sparkSession();
        prepared.analyzed = execution.analyzed();
        prepared.encoder = frame.encoder();
        prepared.analyzed.transformWithSubqueries(new Replace(prepared.session, null, prepared.placeholders));
        if (!prepared.analyzed.containsPattern(TreePattern.CURRENT_LIKE())) {
            SparkPlan plan = execution.executedPlan();
            prepared.plan = plan.subqueriesAll().isEmpty() ? plan : null;
            prepared.localPlan = prepared.plan == null ? null : LocalExecution.localForm(plan);
        }
        return prepared;
    }

    /** Return the ids of the placeholders that the query reads. */
    public List placeholders() {
        return this.placeholders;
    }

    /** Return whether `run` can compute the query. A query that is not local is bound, and runs as a job. */
    public boolean isLocal() {
        return this.localPlan != null;
    }

    /** Compute the query in this thread, on rows in the order of `placeholders()`, and write the result to a file. */
    public void run(List relations, String path) throws Throwable {
        SparkSession.setActiveSession(this.session);
        try {
            LocalExecution.writeArrow(withRows(this.localPlan, relations), this.session, this.analyzed.schema(), path);
        } catch (Throwable error) {
            LOG.error("A query of a small build failed", error);
            throw error;
        }
    }

    private synchronized SparkPlan withRows(SparkPlan plan, List relations) throws Throwable {
        return replace(plan, rowsById(relations), new IdentityHashMap());
    }

    private Map rowsById(List relations) {
        Map rows = new HashMap();
        for (int i = 0; i < relations.size(); i++) {
            rows.put(this.placeholders.get(i), ((Dataset) relations.get(i)).logicalPlan());
        }
        return rows;
    }

    /** Return the query on `relations`, in the order of `placeholders()`. Nothing is computed yet. */
    public Dataset bind(List relations) throws Throwable {
        if (this.plan == null) {
            Replace replace = new Replace(this.session, rowsById(relations), null);
            return Dataset.ofRows(this.session, (LogicalPlan) this.analyzed.transformWithSubqueries(replace));
        }
        return new Dataset(new BoundExecution(this.session, this.analyzed, withRows(this.plan, relations)), this.encoder);
    }

    private static void findPlaceholders(SparkPlan plan, List found) {
        RDD rdd = placeholderOf(plan);
        if (rdd != null && !found.contains(Integer.valueOf(rdd.id()))) found.add(Integer.valueOf(rdd.id()));
        scala.collection.Iterator children = plan.children().iterator();
        while (children.hasNext()) findPlaceholders((SparkPlan) children.next(), found);
    }

    private static RDD placeholderOf(Object plan) {
        RDD rdd = null;
        if (plan instanceof RDDScanExec) rdd = ((RDDScanExec) plan).rdd();
        if (plan instanceof LogicalRDD) rdd = ((LogicalRDD) plan).rdd();
        return rdd instanceof Placeholder ? rdd : null;
    }

    /** Return a copy of a plan that reads other rows. A broadcast of the same rows is reused. */
    private SparkPlan replace(SparkPlan plan, Map rows, Map done) throws Throwable {
        if (done.containsKey(plan)) return (SparkPlan) done.get(plan);
        SparkPlan copy;
        RDD placeholder = placeholderOf(plan);
        if (placeholder != null) {
            copy = scan(plan, rows.get(Integer.valueOf(placeholder.id())));
        } else if (plan instanceof ReusedExchangeExec) {
            ReusedExchangeExec reused = (ReusedExchangeExec) plan;
            copy = new ReusedExchangeExec(reused.output(), (Exchange) replace(reused.child(), rows, done));
        } else if (plan instanceof BroadcastExchangeExec) {
            copy = broadcast(plan, rows, done);
        } else {
            copy = copyWithRows(plan, rows, done);
        }
        done.put(plan, copy);
        return copy;
    }

    private SparkPlan copyWithRows(SparkPlan plan, Map rows, Map done) throws Throwable {
        ArrayList children = new ArrayList();
        scala.collection.Iterator each = plan.children().iterator();
        while (each.hasNext()) children.add(replace((SparkPlan) each.next(), rows, done));
        return (SparkPlan) plan.withNewChildren(CollectionConverters.asScala(children).toList());
    }

    private SparkPlan broadcast(SparkPlan plan, Map rows, Map done) throws Throwable {
        ArrayList ids = new ArrayList();
        findPlaceholders(plan, ids);
        Object[] last = (Object[]) this.broadcasts.get(plan);
        boolean isSame = last != null;
        boolean isSmall = true;
        ArrayList read = new ArrayList();
        for (int i = 0; i < ids.size(); i++) {
            Object relation = rows.get(ids.get(i));
            read.add(relation);
            isSame = isSame && ((List) last[0]).get(i) == relation;
            isSmall = isSmall && relation instanceof LocalRelation && ((LocalRelation) relation).data().size() <= MOST_KEPT_ROWS;
        }
        if (isSame) return (SparkPlan) last[1];
        SparkPlan copy = copyWithRows(plan, rows, done);
        if (copy instanceof LocalExecution.LocalBroadcast) copy = ((LocalExecution.LocalBroadcast) copy).evaluated(this.session);
        if (isSmall) {
            this.broadcasts.put(plan, new Object[] {read, copy});
        } else {
            this.broadcasts.remove(plan);
        }
        return copy;
    }

    private static SparkPlan scan(SparkPlan placeholder, Object relation) {
        if (relation instanceof LocalRelation) {
            return new LocalTableScanExec(placeholder.output(), ((LocalRelation) relation).data(), Option.empty());
        }
        LogicalRDD rows = (LogicalRDD) relation;
        return new RDDScanExec(
            placeholder.output(), rows.rdd(), "ExistingRDD", rows.outputPartitioning(), rows.outputOrdering(), rows.stream()
        );
    }

    /** Replaces the placeholders of a logical plan, or adds their ids to `found`. */
    public static class Replace extends AbstractPartialFunction {
        private final SparkSession session;
        private final Map rows;
        private final List found;

        public Replace(SparkSession session, Map rows, List found) {
            this.session = session;
            this.rows = rows;
            this.found = found;
        }

        public boolean isDefinedAt(Object plan) {
            return placeholderOf(plan) != null;
        }

        public Object applyOrElse(Object plan, Function1 otherwise) {
            RDD placeholder = placeholderOf(plan);
            if (placeholder == null) return otherwise.apply(plan);
            Integer id = Integer.valueOf(placeholder.id());
            if (this.found != null) {
                if (!this.found.contains(id)) this.found.add(id);
                return plan;
            }
            Seq output = ((LogicalRDD) plan).output();
            Object relation = this.rows.get(id);
            if (relation instanceof LocalRelation) {
                return new LocalRelation(output, ((LocalRelation) relation).data(), false, Option.empty());
            }
            LogicalRDD given = (LogicalRDD) relation;
            return new LogicalRDD(
                output, given.rdd(), given.outputPartitioning(), given.outputOrdering(), false, given.stream(), this.session,
                Option.empty(), Option.empty()
            );
        }
    }

    /** A relation whose rows are not known yet. Computing it is an error: call `bind` first. */
    public static class Placeholder extends RDD {
        public Placeholder(SparkContext context) {
            super(context, (Seq) (Object) Nil$.MODULE$, ClassTag$.MODULE$.apply(InternalRow.class));
        }

        public Partition[] getPartitions() {
            throw new IllegalStateException("a prepared query was run without rows");
        }

        public scala.collection.Iterator compute(Partition partition, TaskContext context) {
            throw new IllegalStateException("a prepared query was run without rows");
        }
    }

    /** The execution of an existing physical plan. */
    public static class BoundExecution extends QueryExecution {
        private final LogicalPlan analyzed;
        private final SparkPlan plan;

        public BoundExecution(SparkSession session, LogicalPlan analyzed, SparkPlan plan) {
            super(
                session, analyzed, QueryExecution.$lessinit$greater$default$3(), QueryExecution.$lessinit$greater$default$4(),
                QueryExecution.$lessinit$greater$default$5(), QueryExecution.$lessinit$greater$default$6()
            );
            this.analyzed = analyzed;
            this.plan = plan;
        }

        public LogicalPlan analyzed() {
            return this.analyzed;
        }

        public LogicalPlan optimizedPlan() {
            return this.analyzed;
        }

        public SparkPlan sparkPlan() {
            return this.plan;
        }

        public SparkPlan executedPlan() {
            return this.plan;
        }
    }
}
