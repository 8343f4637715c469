/* In every collective call one rank after the other gives wrong arguments: all ranks must have the same
 * error, nobody waits, and the session stays as good as it was.
 *
 *     program MODE [OPTION=VALUE ...] -- DIRECTORY
 *
 * Each rank prints a line for each call to DIRECTORY/errors.r: what was wrong, code, text. */
#include "core_ranks.h"

#include <math.h>

enum { ROWS = 4, COLUMNS = 6 };

/* What is wrong with a call. */
enum wrong {
    NO_ARRAY,
    NO_PATH,
    NO_UTF8,
    NO_LOCAL,
    NO_LOCALS,
    TOO_MANY_LOCALS,
    OTHER_SHAPE,
    NO_SIZE,
    NO_STRATEGY,
    NO_BACKGROUND,
    NO_JSON,
    NO_OBJECT,
    NO_PLACE,
    ROWS_ALONE,
    WRONGS
};

static const char *const NAMES[WRONGS] = {
    "no array",     "no path",       "no UTF-8", "no local",  "no locals",
    "too many",     "other shape",   "no size",  "strategy",  "background",
    "no JSON",      "no object",     "no place", "rows alone"};

/* A collective call, and which mistakes can be made in it. */
struct call {
    const char *name;
    unsigned wrongs;
};

#define BIT(wrong) (1u << (wrong))
#define OF_PARTS                                                                                \
    (BIT(NO_ARRAY) | BIT(NO_PATH) | BIT(NO_UTF8) | BIT(NO_LOCAL) | BIT(NO_LOCALS) |             \
     BIT(TOO_MANY_LOCALS) | BIT(OTHER_SHAPE) | BIT(NO_SIZE) | BIT(NO_STRATEGY) | BIT(ROWS_ALONE))
#define OF_SAVES                                                                                \
    (BIT(NO_ARRAY) | BIT(NO_LOCAL) | BIT(NO_LOCALS) | BIT(TOO_MANY_LOCALS) | BIT(OTHER_SHAPE) | \
     BIT(NO_SIZE) | BIT(NO_STRATEGY))

static const struct call CALLS[] = {
    {"write", BIT(NO_ARRAY) | BIT(NO_PATH) | BIT(NO_UTF8) | BIT(NO_LOCAL) | BIT(ROWS_ALONE)},
    {"read", BIT(NO_ARRAY) | BIT(NO_PATH) | BIT(NO_UTF8) | BIT(NO_LOCAL) | BIT(ROWS_ALONE)},
    {"write_parts", OF_PARTS | BIT(NO_BACKGROUND) | BIT(NO_JSON) | BIT(NO_OBJECT)},
    {"read_parts", OF_PARTS | BIT(NO_BACKGROUND) | BIT(NO_JSON)},
    {"begin_write", OF_PARTS | BIT(NO_BACKGROUND) | BIT(NO_JSON) | BIT(NO_PLACE)},
    {"begin_read", OF_PARTS | BIT(NO_BACKGROUND) | BIT(NO_JSON) | BIT(NO_PLACE)},
    {"open", BIT(NO_PATH) | BIT(NO_UTF8) | BIT(NO_PLACE)},
    {"read_all", BIT(NO_ARRAY) | BIT(NO_LOCAL) | BIT(NO_LOCALS) | BIT(TOO_MANY_LOCALS) |
                     BIT(OTHER_SHAPE)},
    {"write_all", BIT(NO_ARRAY) | BIT(NO_LOCAL) | BIT(NO_LOCALS) | BIT(TOO_MANY_LOCALS) |
                      BIT(OTHER_SHAPE)},
    {"timestep", OF_SAVES | BIT(NO_BACKGROUND) | BIT(NO_JSON)},
    {"checkpoint", OF_SAVES | BIT(NO_BACKGROUND) | BIT(NO_JSON) | BIT(NO_OBJECT)},
    {"begin_timestep", OF_SAVES | BIT(NO_BACKGROUND) | BIT(NO_PLACE)},
    {"begin_checkpoint", OF_SAVES | BIT(NO_BACKGROUND) | BIT(NO_PLACE) | BIT(NO_JSON)},
    {"find_checkpoint", BIT(NO_ARRAY) | BIT(NO_PLACE)},
    {"restart", BIT(NO_ARRAY) | BIT(NO_LOCAL) | BIT(NO_LOCALS) | BIT(TOO_MANY_LOCALS) |
                    BIT(OTHER_SHAPE) | BIT(NO_PLACE)},
    {"copy", BIT(NO_PATH) | BIT(NO_UTF8) | BIT(NO_SIZE) | BIT(NO_STRATEGY)},
    {"refuse", BIT(NO_PATH)},
};

/* What the ranks share. */
struct job {
    struct rank *rank;
    char path[1024], out[1024], group_path[1024], copy_path[1024];
    penstock_array *array, *region, *rows;
    penstock_group *group;
    penstock_checkpoint_state *state;
    penstock_open_array *open;
    double *local;
    uint64_t share[2];
    uint64_t other[2];
    FILE *log;
};

static void prepare(struct job *job, struct rank *rank) {
    const char *directory = rank->argv[0];
    char name[1200];
    job->rank = rank;
    snprintf(job->path, sizeof job->path, "%s/store", directory);
    snprintf(job->out, sizeof job->out, "%s/out", directory);
    snprintf(job->group_path, sizeof job->group_path, "%s/group", directory);
    snprintf(job->copy_path, sizeof job->copy_path, "%s/copy", directory);
    snprintf(name, sizeof name, "%s/errors.%d", directory, rank->rank);
    job->log = fopen(name, "w");
    CHECK(job->log != NULL);
    uint64_t shape[] = {(uint64_t)(ROWS * rank->ranks), COLUMNS};
    uint64_t mesh[] = {(uint64_t)rank->ranks};
    job->share[0] = ROWS, job->share[1] = COLUMNS;
    job->other[0] = ROWS, job->other[1] = COLUMNS + 1;
    job->local = malloc(ROWS * (COLUMNS + 1) * sizeof *job->local);
    CHECK(job->local != NULL);
    for (int nth = 0; nth < ROWS * COLUMNS; nth++)
        job->local[nth] = 1000 * rank->rank + nth;
    MUST(penstock_array_create("u", 2, shape, "f8", &job->array));
    MUST(penstock_array_set_distribution(job->array, "BLOCK,*", 1, mesh, NULL));
    MUST(penstock_array_set_chunks(job->array, (uint64_t[]){3, 4}, NULL, NULL));
    MUST(penstock_array_copy(job->array, &job->region));
    uint64_t start[] = {(uint64_t)(ROWS * rank->rank), 0};
    MUST(penstock_array_set_region_boxes(job->region, 1, start, job->share));
    uint64_t rows[] = {PENSTOCK_ROWS};
    MUST(penstock_array_create("r", 1, rows, "i4", &job->rows));
    penstock_memory memory = {job->local, NULL, NULL};
    penstock_locals locals = {1, &memory};
    MUST(penstock_write(rank->session, job->path, job->array, job->local, NULL));
    MUST(penstock_group_create("g", job->group_path, &job->group));
    MUST(penstock_group_add(job->group, job->array));
    MUST(penstock_group_set_keep(job->group, 1000));
    MUST(penstock_timestep(rank->session, job->group, &locals, NULL, NULL));
    MUST(penstock_checkpoint(rank->session, job->group, &locals, NULL, NULL));
    MUST(penstock_find_checkpoint(rank->session, job->group, -1, &job->state));
    CHECK(job->state != NULL);
    MUST(penstock_open_array_open(rank->session, job->path, "u", 1, &job->open));
}

/* Makes a call with this mistake, or without one: WRONGS. */
static int make(struct job *job, const char *name, enum wrong wrong) {
    penstock_session *session = job->rank->session;
    const penstock_array *array = wrong == NO_ARRAY     ? NULL
                                  : wrong == ROWS_ALONE ? job->rows
                                                        : job->array;
    const penstock_array *region = wrong == NO_ARRAY ? NULL : job->region;
    const penstock_group *group = wrong == NO_ARRAY ? NULL : job->group;
    const char *there = strstr(name, "write") == NULL ? job->path : job->out;
    const char *path = wrong == NO_PATH ? NULL : wrong == NO_UTF8 ? "\xff\xfe" : there;
    double *local = wrong == NO_LOCAL ? NULL : job->local;
    penstock_memory two[] = {{local, wrong == OTHER_SHAPE ? job->other : NULL, NULL},
                             {local, NULL, NULL}};
    penstock_memory *memories = wrong == NO_LOCALS ? NULL : two;
    size_t count = wrong == TOO_MANY_LOCALS ? 2 : 1;
    penstock_locals of_array = {count, memories};
    penstock_locals *locals = wrong == NO_LOCALS ? NULL : &of_array;
    penstock_call_options options = PENSTOCK_CALL_OPTIONS_INIT;
    if (wrong == NO_SIZE) options.size = 0;
    if (wrong == NO_STRATEGY) options.strategy = "by-magic";
    if (wrong == NO_BACKGROUND) options.background = "music";
    if (wrong == NO_JSON) options.attributes = "{";
    if (wrong == NO_OBJECT) options.attributes = "[1]";
    penstock_split *split = NULL;
    penstock_split **place = wrong == NO_PLACE ? NULL : &split;
    int code;
    if (strcmp(name, "write") == 0)
        return penstock_write(session, path, array, local, NULL);
    if (strcmp(name, "read") == 0)
        return penstock_read(session, path, array, local, NULL);
    if (strcmp(name, "write_parts") == 0)
        return penstock_write_parts(session, path, array, count, memories, &options, NULL);
    if (strcmp(name, "read_parts") == 0)
        return penstock_read_parts(session, path, array, count, memories, &options, NULL);
    if (strcmp(name, "begin_write") == 0 || strcmp(name, "begin_read") == 0) {
        code = (name[6] == 'w' ? penstock_begin_write : penstock_begin_read)(
            session, path, array, count, memories, &options, place);
    } else if (strcmp(name, "begin_timestep") == 0) {
        code = penstock_begin_timestep(session, group, locals, &options, place);
    } else if (strcmp(name, "begin_checkpoint") == 0) {
        code = penstock_begin_checkpoint(session, group, locals, &options, place);
    } else if (strcmp(name, "timestep") == 0) {
        return penstock_timestep(session, group, locals, &options, NULL);
    } else if (strcmp(name, "checkpoint") == 0) {
        return penstock_checkpoint(session, group, locals, &options, NULL);
    } else if (strcmp(name, "open") == 0) {
        penstock_open_array *open = NULL;
        code = penstock_open_array_open(session, path, NULL, 0,
                                        wrong == NO_PLACE ? NULL : &open);
        if (code == PENSTOCK_OK) MUST(penstock_open_array_close(open));
        else CHECK(open == NULL);
        return code;
    } else if (strcmp(name, "read_all") == 0) {
        return penstock_open_array_read_all(job->open, region, count, memories, NULL);
    } else if (strcmp(name, "write_all") == 0) {
        return penstock_open_array_write_all(job->open, region, count, memories, NULL);
    } else if (strcmp(name, "find_checkpoint") == 0) {
        penstock_checkpoint_state *state = NULL;
        code = penstock_find_checkpoint(session, group, -1, wrong == NO_PLACE ? NULL : &state);
        CHECK(code != PENSTOCK_OK || state != NULL);
        penstock_checkpoint_free(state);
        return code;
    } else if (strcmp(name, "restart") == 0) {
        return penstock_restart(session, group, wrong == NO_PLACE ? NULL : job->state, locals,
                                NULL);
    } else if (strcmp(name, "copy") == 0) {
        penstock_copy_options copy = PENSTOCK_COPY_OPTIONS_INIT;
        copy.overwrite = 1;
        if (wrong == NO_SIZE) copy.size = 8;
        if (wrong == NO_STRATEGY) copy.row_major = "column-major";
        return penstock_session_copy(session, path, job->copy_path, &copy, NULL);
    } else {
        CHECK(strcmp(name, "refuse") == 0);
        if (wrong == WRONGS) return penstock_session_barrier(session);
        return penstock_session_refuse(session, PENSTOCK_ERR_UNSUPPORTED, "making a call",
                                       "it cannot be");
    }
    if (code == PENSTOCK_OK) {
        int has_ended;
        MUST(penstock_split_test(split, &has_ended));
        code = penstock_split_end(split, NULL);
    } else {
        CHECK(split == NULL);
    }
    return code;
}

static int rank_main(struct rank *rank) {
    struct job job = {0};
    prepare(&job, rank);
    for (size_t nth = 0; nth < sizeof CALLS / sizeof *CALLS; nth++) {
        const struct call *call = &CALLS[nth];
        for (enum wrong wrong = 0; wrong < WRONGS; wrong++) {
            if (!(call->wrongs & BIT(wrong))) continue;
            for (int who = 0; who < rank->ranks; who++) {
                int code = make(&job, call->name, who == rank->rank ? wrong : WRONGS);
                fprintf(job.log, "%s: %s on rank %d: %d %s\n", call->name, NAMES[wrong], who,
                        code, code == PENSTOCK_OK ? "" : why());
                fflush(job.log);
            }
        }
        /* The same call, made well, succeeds afterwards. */
        int code = make(&job, call->name, WRONGS);
        fprintf(job.log, "%s: well: %d %s\n", call->name, code, code == PENSTOCK_OK ? "" : why());
        fflush(job.log);
    }
    MUST(penstock_open_array_close(job.open));
    penstock_array_free(job.array);
    penstock_array_free(job.region);
    penstock_array_free(job.rows);
    penstock_group_free(job.group);
    penstock_checkpoint_free(job.state);
    free(job.local);
    fclose(job.log);
    return 0;
}
