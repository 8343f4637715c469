/* Plays a script about one array after the other, and about groups: see test_c_core.py, which
 * writes a script for each rank, and knows what must come of it.
 *
 *     program MODE [OPTION=VALUE ...] -- DIRECTORY
 *
 * Rank r plays DIRECTORY/script.r, and prints a line "call code" for each call to DIRECTORY/log.r. */
#include "core_ranks.h"

#include <math.h>

enum { DIMS_MAX = 8, LOCALS_MAX = 4096, ARRAYS_MAX = 16, SPLITS_MAX = 8 };

/* What a script has made. */
struct player {
    struct rank *rank;
    FILE *script;
    FILE *log;
    const char *directory;
    penstock_array *array;
    penstock_list *list, *places;
    penstock_open_array *open;
    penstock_group *group;
    penstock_checkpoint_state *state;
    penstock_split *splits[SPLITS_MAX];
    char *memory;
    size_t bytes;
    penstock_memory memories[LOCALS_MAX];
    size_t count;
    penstock_locals locals[ARRAYS_MAX];
    size_t arrays;
    uint64_t numbers[LOCALS_MAX][DIMS_MAX];
    int64_t strides[LOCALS_MAX][DIMS_MAX];
};

static const char *word(struct player *player, char *into) {
    CHECK(fscanf(player->script, "%1023s", into) == 1);
    return strcmp(into, "NULL") == 0 ? NULL : into;
}

static uint64_t number(struct player *player) {
    unsigned long long value;
    CHECK(fscanf(player->script, "%llu", &value) == 1);
    return value;
}

static int64_t signed_number(struct player *player) {
    long long value;
    CHECK(fscanf(player->script, "%lld", &value) == 1);
    return value;
}

/* A count, and the numbers, to be freed; NULL for "NULL". */
static uint64_t *numbers(struct player *player, size_t *count) {
    *count = number(player);
    uint64_t *values = calloc(*count + 1, sizeof *values);
    for (size_t nth = 0; nth < *count; nth++)
        values[nth] = number(player);
    return values;
}

static void note(struct player *player, const char *call, int code) {
    fprintf(player->log, "%s %d %s\n", call, code, code == PENSTOCK_OK ? "" : why());
    fflush(player->log);
}

/* A path in the directory; behind an "@" one that is left as it is. */
static char *path_in(struct player *player, char *path, size_t bytes) {
    char name[1024];
    word(player, name);
    if (name[0] == '@')
        snprintf(path, bytes, "%s", name + 1);
    else
        snprintf(path, bytes, "%s/%s", player->directory, name);
    return path;
}

static void load(struct player *player) {
    char path[2048];
    path_in(player, path, sizeof path);
    free(player->memory);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    player->bytes = (size_t)ftell(file);
    rewind(file);
    player->memory = malloc(player->bytes + 1);
    CHECK(fread(player->memory, 1, player->bytes, file) == player->bytes);
    fclose(file);
    player->count = 0;
    player->arrays = 0;
}

static void dump(struct player *player) {
    char path[2048];
    path_in(player, path, sizeof path);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(player->memory, 1, player->bytes, file) == player->bytes);
    CHECK(fclose(file) == 0);
}

/* local OFFSET DIMS EXTENT... STRIDE...: a local array in the memory. */
static void add_local(struct player *player) {
    size_t nth = player->count++, offset = number(player), dims = number(player);
    CHECK(nth < LOCALS_MAX && dims <= DIMS_MAX);
    for (size_t dim = 0; dim < dims; dim++)
        player->numbers[nth][dim] = number(player);
    for (size_t dim = 0; dim < dims; dim++)
        player->strides[nth][dim] = signed_number(player);
    player->memories[nth] =
        (penstock_memory){player->memory + offset, player->numbers[nth], player->strides[nth]};
}

/* plain OFFSET: a contiguous local array, whose shape Penstock knows. */
static void add_plain(struct player *player) {
    CHECK(player->count < LOCALS_MAX);
    player->memories[player->count++] =
        (penstock_memory){player->memory + number(player), NULL, NULL};
}

/* locals COUNT: the next COUNT local arrays are those of the group's next array. */
static void add_locals(struct player *player, size_t *taken) {
    size_t count = number(player);
    CHECK(player->arrays < ARRAYS_MAX && *taken + count <= player->count);
    player->locals[player->arrays++] = (penstock_locals){count, player->memories + *taken};
    *taken += count;
}

static penstock_list *a_list(struct player *player) {
    char kind[1024];
    penstock_list *list;
    size_t count, more;
    if (strcmp(word(player, kind) == NULL ? "NULL" : kind, "NULL") == 0) return NULL;
    if (strcmp(kind, "runs") == 0) {
        uint64_t *offsets = numbers(player, &count), *lengths = numbers(player, &more);
        CHECK(count == more);
        MUST(penstock_list_runs(count, offsets, lengths, &list));
        free(offsets);
        free(lengths);
        return list;
    }
    uint64_t start = number(player), length = number(player);
    uint64_t *counts = numbers(player, &count);
    int64_t *strides = calloc(count + 1, sizeof *strides);
    for (size_t nth = 0; nth < count; nth++)
        strides[nth] = signed_number(player);
    MUST(penstock_list_strided(start, length, count, counts, strides, &list));
    free(counts);
    free(strides);
    return list;
}

static int describe(struct player *player, const char *command) {
    char first[1024], second[1024], third[1024];
    size_t count, more;
    if (strcmp(command, "array") == 0) {
        penstock_array_free(player->array);
        word(player, first), word(player, second);
        uint64_t *shape = numbers(player, &count);
        MUST(penstock_array_create(first, count, shape, second, &player->array));
        free(shape);
    } else if (strcmp(command, "distribution") == 0) {
        word(player, first);
        if (strcmp(first, ",") == 0) first[0] = 0; /* of an array without dimensions */
        uint64_t *mesh = numbers(player, &count), *halo = numbers(player, &more);
        MUST(penstock_array_set_distribution(player->array, first, count, mesh,
                                             more == 0 ? NULL : halo));
        free(mesh);
        free(halo);
    } else if (strcmp(command, "boxes") == 0 || strcmp(command, "regions") == 0) {
        size_t boxes = number(player);
        uint64_t *starts = numbers(player, &count), *shapes = numbers(player, &count);
        uint64_t *halo = numbers(player, &more);
        if (strcmp(command, "boxes") == 0)
            MUST(penstock_array_set_boxes(player->array, boxes, starts, shapes,
                                          more == 0 ? NULL : halo));
        else
            MUST(penstock_array_set_region_boxes(player->array, boxes, starts, shapes));
        free(starts);
        free(shapes);
        free(halo);
    } else if (strcmp(command, "list") == 0 || strcmp(command, "listregion") == 0) {
        penstock_list *list = a_list(player), *places = a_list(player);
        if (strcmp(command, "list") == 0)
            MUST(penstock_array_set_list(player->array, list, places));
        else
            MUST(penstock_array_set_region_list(player->array, list, places));
        penstock_list_free(list);
        penstock_list_free(places);
    } else if (strcmp(command, "chunks") == 0) {
        uint64_t *chunk = numbers(player, &count), *sub = numbers(player, &more);
        word(player, third);
        MUST(penstock_array_set_chunks(player->array, chunk, more == 0 ? NULL : sub, third));
        free(chunk);
        free(sub);
    } else if (strcmp(command, "rowmajor") == 0) {
        MUST(penstock_array_set_row_major(player->array, word(player, first)));
    } else if (strcmp(command, "parts") == 0) {
        word(player, first);
        uint64_t *mesh = numbers(player, &count);
        MUST(penstock_array_set_parts(player->array, first, count, mesh));
        free(mesh);
    } else if (strcmp(command, "names") == 0) {
        const char *names[DIMS_MAX] = {first, second, third};
        for (size_t dim = 0; dim < penstock_array_dims(player->array); dim++)
            word(player, (char *)names[dim]);
        MUST(penstock_array_set_dimension_names(player->array, names));
    } else if (strcmp(command, "attributes") == 0) {
        MUST(penstock_array_set_attributes(player->array, word(player, first)));
    } else if (strcmp(command, "fill") == 0) {
        MUST(penstock_array_set_fill(player->array, player->memory + number(player)));
    } else {
        return 0;
    }
    return 1;
}

/* Call options: strategy, background, attributes, time and step. */
static penstock_call_options call_options(struct player *player, char words[3][1024]) {
    penstock_call_options options = PENSTOCK_CALL_OPTIONS_INIT;
    options.strategy = word(player, words[0]);
    options.background = word(player, words[1]);
    options.attributes = word(player, words[2]);
    double time;
    CHECK(fscanf(player->script, "%lf", &time) == 1);
    options.time = time;
    options.step = signed_number(player);
    return options;
}

static int move(struct player *player, const char *command) {
    penstock_session *session = player->rank->session;
    char path[2048], words[3][1024];
    penstock_report report;
    int is_write = strstr(command, "write") != NULL;
    if (strcmp(command, "write") == 0 || strcmp(command, "read") == 0) {
        path_in(player, path, sizeof path);
        penstock_call_options options = call_options(player, words);
        int code = (is_write ? penstock_write_parts : penstock_read_parts)(
            session, path, player->array, player->count, player->memories, &options, &report);
        note(player, command, code);
        if (code == PENSTOCK_OK)
            CHECK(report.seconds >= 0 && report.servers == (uint64_t)penstock_session_servers(session));
    } else if (strcmp(command, "simplewrite") == 0) {
        path_in(player, path, sizeof path);
        note(player, command,
             penstock_write(session, path, player->array, player->memory, &report));
    } else if (strcmp(command, "simpleread") == 0) {
        path_in(player, path, sizeof path);
        note(player, command, penstock_read(session, path, player->array, player->memory, NULL));
    } else if (strcmp(command, "beginwrite") == 0 || strcmp(command, "beginread") == 0) {
        size_t nth = number(player);
        path_in(player, path, sizeof path);
        penstock_call_options options = call_options(player, words);
        CHECK(nth < SPLITS_MAX);
        note(player, command,
             (is_write ? penstock_begin_write : penstock_begin_read)(
                 session, path, player->array, player->count, player->memories, &options,
                 &player->splits[nth]));
    } else if (strcmp(command, "end") == 0) {
        size_t nth = number(player);
        int has_ended = -1;
        MUST(penstock_split_test(player->splits[nth], &has_ended));
        CHECK(has_ended == 0 || has_ended == 1);
        note(player, command, penstock_split_end(player->splits[nth], &report));
    } else if (strcmp(command, "open") == 0) {
        path_in(player, path, sizeof path);
        int is_writable = (int)number(player);
        note(player, command,
             penstock_open_array_open(session, path, NULL, is_writable, &player->open));
    } else if (strcmp(command, "putbox") == 0 || strcmp(command, "getbox") == 0) {
        size_t count;
        uint64_t *start = numbers(player, &count), *shape = numbers(player, &count);
        note(player, command,
             (command[0] == 'p' ? penstock_open_array_write : penstock_open_array_read)(
                 player->open, start, shape, player->memories));
        free(start);
        free(shape);
    } else if (strcmp(command, "putlist") == 0 || strcmp(command, "getlist") == 0) {
        penstock_list *list = a_list(player), *places = a_list(player);
        note(player, command,
             (command[0] == 'p' ? penstock_open_array_write_list : penstock_open_array_read_list)(
                 player->open, list, places, player->memories));
        penstock_list_free(list);
        penstock_list_free(places);
    } else if (strcmp(command, "putall") == 0) {
        note(player, command,
             penstock_open_array_write_all(player->open, player->array, player->count,
                                           player->memories, &report));
    } else if (strcmp(command, "getall") == 0) {
        note(player, command,
             penstock_open_array_read_all(player->open, player->array, player->count,
                                          player->memories, &report));
    } else if (strcmp(command, "flush") == 0) {
        note(player, command, penstock_open_array_flush(player->open));
    } else if (strcmp(command, "close") == 0) {
        note(player, command, penstock_open_array_close(player->open));
        player->open = NULL;
    } else if (strcmp(command, "barrier") == 0) {
        note(player, command, penstock_session_barrier(session));
    } else {
        return 0;
    }
    return 1;
}

static int save(struct player *player, const char *command) {
    penstock_session *session = player->rank->session;
    char path[2048], name[1024], words[3][1024];
    penstock_report report;
    if (strcmp(command, "group") == 0) {
        penstock_group_free(player->group);
        word(player, name);
        path_in(player, path, sizeof path);
        MUST(penstock_group_create(name, path, &player->group));
    } else if (strcmp(command, "add") == 0) {
        MUST(penstock_group_add(player->group, player->array));
    } else if (strcmp(command, "keep") == 0) {
        MUST(penstock_group_set_keep(player->group, number(player)));
    } else if (strcmp(command, "timechunk") == 0) {
        MUST(penstock_group_set_time_chunk(player->group, number(player)));
    } else if (strcmp(command, "timestep") == 0 || strcmp(command, "checkpoint") == 0) {
        penstock_call_options options = call_options(player, words);
        note(player, command,
             (command[0] == 't' ? penstock_timestep : penstock_checkpoint)(
                 session, player->group, player->locals, &options, &report));
    } else if (strcmp(command, "begintimestep") == 0 || strcmp(command, "begincheckpoint") == 0) {
        size_t nth = number(player);
        penstock_call_options options = call_options(player, words);
        CHECK(nth < SPLITS_MAX);
        note(player, command,
             (command[5] == 't' ? penstock_begin_timestep : penstock_begin_checkpoint)(
                 session, player->group, player->locals, &options, &player->splits[nth]));
    } else if (strcmp(command, "find") == 0) {
        penstock_checkpoint_free(player->state);
        player->state = NULL;
        int64_t step = signed_number(player);
        int code = penstock_find_checkpoint(session, player->group, step, &player->state);
        note(player, command, code);
        char *json = NULL;
        if (player->state != NULL) {
            double time = penstock_checkpoint_time(player->state);
            MUST(penstock_checkpoint_attributes(player->state, &json));
            fprintf(player->log, "state %llu %s %g %llu %s\n",
                    (unsigned long long)penstock_checkpoint_step(player->state),
                    isnan(time) ? "none" : "time", isnan(time) ? 0 : time,
                    (unsigned long long)penstock_checkpoint_timesteps(player->state), json);
        }
        penstock_free(json);
    } else if (strcmp(command, "shares") == 0) { /* of an array at the restart: prints its shape */
        penstock_array *array;
        uint64_t shape[DIMS_MAX], bytes;
        word(player, name);
        MUST(penstock_checkpoint_array(session, player->group, player->state, name, &array));
        MUST(penstock_array_local_shape(array, player->rank->rank, 0, shape));
        MUST(penstock_array_local_bytes(array, player->rank->rank, &bytes));
        fprintf(player->log, "share %s %llu %llu\n", name, (unsigned long long)shape[0],
                (unsigned long long)bytes);
        penstock_array_free(array);
    } else if (strcmp(command, "restart") == 0) {
        note(player, command, penstock_restart(session, player->group, player->state,
                                               player->locals, &report));
    } else {
        return 0;
    }
    return 1;
}

static int rank_main(struct rank *rank) {
    struct player *player = calloc(1, sizeof *player);
    char path[2048], command[1024];
    size_t taken = 0;
    CHECK(player != NULL && rank->argc == 1);
    player->rank = rank;
    player->directory = rank->argv[0];
    snprintf(path, sizeof path, "%s/script.%d", rank->argv[0], rank->rank);
    player->script = fopen(path, "r");
    snprintf(path, sizeof path, "%s/log.%d", rank->argv[0], rank->rank);
    player->log = fopen(path, "w");
    CHECK(player->script != NULL && player->log != NULL);
    while (fscanf(player->script, "%1023s", command) == 1) {
        if (strcmp(command, "memory") == 0) {
            load(player);
            taken = 0;
        } else if (strcmp(command, "dump") == 0) {
            dump(player);
        } else if (strcmp(command, "local") == 0) {
            add_local(player);
        } else if (strcmp(command, "plain") == 0) {
            add_plain(player);
        } else if (strcmp(command, "locals") == 0) {
            add_locals(player, &taken);
        } else if (!describe(player, command) && !move(player, command) &&
                   !save(player, command)) {
            fprintf(stderr, "no command: %s\n", command);
            return 2;
        }
    }
    penstock_array_free(player->array);
    penstock_group_free(player->group);
    penstock_checkpoint_free(player->state);
    free(player->memory);
    fclose(player->script);
    fclose(player->log);
    free(player);
    return 0;
}
