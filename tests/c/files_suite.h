/* What tests of parallel files share: checks, random numbers, and a file by the equations of section
 * 3.2 of the paper (Corbett and Feitelson, TOCS 1996), byte by byte. */
#ifndef FILES_SUITE_H
#define FILES_SUITE_H

#include <penstock.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int suite_rank = 0;

#define FAIL(...)                                                                    \
    do {                                                                             \
        fprintf(stderr, "%s:%d: rank %d: ", __FILE__, __LINE__, suite_rank);         \
        fprintf(stderr, __VA_ARGS__);                                                \
        fprintf(stderr, "\n");                                                       \
        exit(1);                                                                     \
    } while (0)

#define CHECK(condition)                                   \
    do {                                                   \
        if (!(condition)) FAIL("not so: %s", #condition);  \
    } while (0)

/* The call succeeds. */
#define FINE(call)                                                                         \
    do {                                                                                   \
        if ((call) != PENSTOCK_OK) FAIL("%s: %s", #call, penstock_last_error()->text);     \
    } while (0)

/* The call fails with this code, and the last error says so, and has this in its text. */
#define FAILS(wanted, part, call)                                                               \
    do {                                                                                        \
        int code_ = (call);                                                                     \
        if (code_ != (wanted))                                                                  \
            FAIL("%s: %s in place of %s%s%s", #call, penstock_code_name(code_),                 \
                 penstock_code_name(wanted), code_ ? ": " : "",                                 \
                 code_ ? penstock_last_error()->text : "");                                     \
        const penstock_error *error_ = penstock_last_error();                                   \
        if (error_ == NULL || error_->code != code_ || strstr(error_->text, (part)) == NULL)    \
            FAIL("%s: no '%s' in: %s", #call, (part), error_ ? error_->text : "nothing");       \
    } while (0)

static uint64_t suite_state = 88172645463325252u;

/* A random number below `end`; the same ones in every run. */
static uint64_t chance(uint64_t end)
{
    suite_state ^= suite_state << 13;
    suite_state ^= suite_state >> 7;
    suite_state ^= suite_state << 17;
    return suite_state % end;
}

enum { CELLS_MAX = 8, CELL_BYTES_MAX = 4096 };

/* The contents of a file. */
typedef struct model {
    uint64_t cells, bsu;
    uint64_t ends[CELLS_MAX];
    unsigned char bytes[CELLS_MAX][CELL_BYTES_MAX];
} model;

/* A place of a byte: the cell, which may be a ghost, and the byte in it. */
typedef struct place {
    uint64_t cell, at;
} place;

/* The subfile of BSU `j` of cell `i`, and its number there. */
static void numbers_of(const model *file, const penstock_view *view, int order, uint64_t i,
                       uint64_t j, uint64_t *subfile, uint64_t *number)
{
    uint64_t width = view->hbs * view->hn, height = view->vbs * view->vn;
    uint64_t groups = (file->cells + width - 1) / width;
    *subfile = i % width / view->hbs + j % height / view->vbs * view->hn;
    if (order == PENSTOCK_ROW_ORDER) {
        uint64_t row = j / height * view->vbs + j % view->vbs;
        uint64_t column = i / width * view->hbs + i % view->hbs;
        *number = row * groups * view->hbs + column;
    } else {
        uint64_t block = j / height * groups + i / width;
        uint64_t within = i % view->hbs * view->vbs + j % view->vbs;
        *number = block * view->vbs * view->hbs + within;
    }
}

static int before(const void *left, const void *right)
{
    const place *a = left, *b = right;
    if (a->cell != b->cell) return a->cell < b->cell ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* The places of the bytes of an access, in its order; to be freed. */
static place *places_of(const model *file, const penstock_view *view, uint64_t subfile, int order,
                        uint64_t offset, uint64_t count)
{
    uint64_t width = view->hbs * view->hn, height = view->vbs * view->vn;
    uint64_t across = (file->cells + width - 1) / width * width;
    uint64_t down = ((offset + count) / file->bsu + 1) * height;
    place *units = malloc(across * down * sizeof *units), *found = malloc((count + 1) * sizeof *found);
    for (uint64_t i = 0; i < across; i++)
        for (uint64_t j = 0; j < down; j++) {
            uint64_t owner, number;
            numbers_of(file, view, order, i, j, &owner, &number);
            if (owner == subfile && number < across * down) units[number] = (place){i, j};
        }
    for (uint64_t n = 0; n < count; n++) {
        place unit = units[(offset + n) / file->bsu];
        found[n] = (place){unit.cell, unit.at * file->bsu + (offset + n) % file->bsu};
    }
    if (order == PENSTOCK_COLUMN_ORDER) qsort(found, count, sizeof *found, before);
    free(units);
    return found;
}

static uint64_t model_write(model *file, const place *places, const unsigned char *data,
                            uint64_t count)
{
    uint64_t moved = 0;
    for (uint64_t n = 0; n < count; n++) {
        uint64_t cell = places[n].cell, at = places[n].at;
        if (cell >= file->cells) continue;
        CHECK(at < CELL_BYTES_MAX);
        if (at >= file->ends[cell]) {
            memset(file->bytes[cell] + file->ends[cell], 0, at - file->ends[cell]);
            file->ends[cell] = at + 1;
        }
        file->bytes[cell][at] = data[n];
        moved++;
    }
    return moved;
}

static uint64_t model_read(const model *file, const place *places, unsigned char *data,
                           uint64_t count)
{
    uint64_t moved = 0;
    for (uint64_t n = 0; n < count; n++) {
        uint64_t cell = places[n].cell, at = places[n].at;
        if (cell >= file->cells || at >= file->ends[cell]) continue;
        data[n] = file->bytes[cell][at];
        moved++;
    }
    return moved;
}

/* A path in a directory. Four of them live at a time. */
static const char *join_path(const char *directory, const char *name)
{
    static char joined[4][4096];
    static int next = 0;
    next = (next + 1) % 4;
    snprintf(joined[next], sizeof joined[next], "%s/%s", directory, name);
    return joined[next];
}

#endif
