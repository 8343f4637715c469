/* What the Fortran module leaves to C: descriptors of arrays, and errors that the module finds
 * itself. A descriptor (F2018, section 18.4) says where an array of any type, kind, rank and
 * strides lies; here it becomes a description in C order, the dimensions reversed. */
#include <ISO_Fortran_binding.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { KIND_OTHER, KIND_INTEGER, KIND_REAL, KIND_COMPLEX, KIND_LOGICAL, KIND_CHARACTER };

/* The type c_local of penstock_base.f90. */
typedef struct local {
    void *base;
    int64_t element_bytes;
    int64_t elements;
    int rank;
    int kind;
    int is_contiguous;
    int64_t shape[CFI_MAX_RANK]; /* in C order */
    int64_t strides[CFI_MAX_RANK]; /* bytes, in C order */
} local;

void penstock_fortran_describe(const CFI_cdesc_t *array, local *description);
void *penstock_fortran_words(const CFI_cdesc_t *words);
int32_t penstock_fortran_handle(const int32_t *communicator);
void penstock_fortran_note(const char *text);
const char *penstock_fortran_noted(void);

static int is_one_of(CFI_type_t type, const CFI_type_t *types, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (types[i] == type) {
            return 1;
        }
    }
    return 0;
}

static int kind_of(CFI_type_t type)
{
    static const CFI_type_t integers[] = {
        CFI_type_signed_char, CFI_type_short,   CFI_type_int,     CFI_type_long,
        CFI_type_long_long,   CFI_type_int8_t,  CFI_type_int16_t, CFI_type_int32_t,
        CFI_type_int64_t,     CFI_type_size_t,  CFI_type_intptr_t};
    static const CFI_type_t reals[] = {CFI_type_float, CFI_type_double};
    static const CFI_type_t complexes[] = {CFI_type_float_Complex, CFI_type_double_Complex};

    if (is_one_of(type, integers, sizeof integers / sizeof *integers)) {
        return KIND_INTEGER;
    }
    if (is_one_of(type, reals, sizeof reals / sizeof *reals)) {
        return KIND_REAL;
    }
    if (is_one_of(type, complexes, sizeof complexes / sizeof *complexes)) {
        return KIND_COMPLEX;
    }
    if (type == CFI_type_Bool) {
        return KIND_LOGICAL;
    }
    return type == CFI_type_char ? KIND_CHARACTER : KIND_OTHER;
}

/* Describes an array. */
void penstock_fortran_describe(const CFI_cdesc_t *array, local *description)
{
    int rank = array->rank;
    int64_t together = (int64_t)array->elem_len;

    description->base = array->base_addr;
    description->element_bytes = (int64_t)array->elem_len;
    description->elements = 1;
    description->rank = rank;
    description->kind = kind_of(array->type);
    description->is_contiguous = 1;
    for (int i = 0; i < rank; i++) {
        int64_t extent = (int64_t)array->dim[i].extent;
        int64_t stride = (int64_t)array->dim[i].sm;

        extent = extent < 0 ? 0 : extent;
        description->shape[rank - 1 - i] = extent;
        description->strides[rank - 1 - i] = stride;
        if (extent > 1 && stride != together) {
            description->is_contiguous = 0;
        }
        together *= extent;
        description->elements *= extent;
    }
    description->is_contiguous |= description->elements == 0;
}

/* The elements of an array of texts, without trailing blanks, as C has them: a block of memory, to
 * be freed, with a pointer to each text and a null pointer. NULL if there is no memory. */
void *penstock_fortran_words(const CFI_cdesc_t *words)
{
    size_t count = 1, length = words->elem_len;
    char **pointers, *text;

    for (int i = 0; i < words->rank; i++) {
        count *= words->dim[i].extent < 0 ? 0 : (size_t)words->dim[i].extent;
    }
    pointers = malloc((count + 1) * sizeof *pointers + count * (length + 1));
    if (pointers == NULL) {
        return NULL;
    }
    text = (char *)(pointers + count + 1);
    for (size_t number = 0; number < count; number++, text += length + 1) {
        const char *source = words->base_addr;
        size_t rest = number, bytes = length;

        for (int i = 0; i < words->rank; i++) {
            source += (ptrdiff_t)(rest % (size_t)words->dim[i].extent) * words->dim[i].sm;
            rest /= (size_t)words->dim[i].extent;
        }
        while (bytes > 0 && source[bytes - 1] == ' ') {
            bytes--;
        }
        memcpy(text, source, bytes);
        text[bytes] = '\0';
        pointers[number] = text;
    }
    pointers[count] = NULL;
    return pointers;
}

/* The integer of a communicator of type(MPI_Comm), which has nothing else in it. */
int32_t penstock_fortran_handle(const int32_t *communicator)
{
    return *communicator;
}

/* The error that the module has found itself on this thread, and nothing where the last one came
 * from the library. A longer text is cut. */
static _Thread_local char noted[1024];

void penstock_fortran_note(const char *text)
{
    strncpy(noted, text, sizeof noted - 1);
}

const char *penstock_fortran_noted(void)
{
    return noted;
}
