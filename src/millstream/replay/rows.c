/* Rows of a table are records: all that belongs to a step side by side, so that reading it waits for memory once. A plan
   says where each column stands in a record, and where in what comes in or goes out. */

#include <stdint.h>
#include <string.h>

#define COPY(width)                                                     \
    for (long i = 0; i < count; i++)                                    \
        memcpy(to + i * width, from + (places ? places[i] : i) * stride, width)

/* From every `stride` bytes, or only from the records at these places, into bytes without gaps. */
static void gather(char *to, const char *from, long stride, long width, long count, const int64_t *places)
{
    switch (width) {
    case 1: COPY(1); break;
    case 4: COPY(4); break;
    case 8: COPY(8); break;
    case 16: COPY(16); break;
    case 32: COPY(32); break;
    default: COPY(width);
    }
}

#undef COPY
#define COPY(width)                                   \
    for (long i = 0; i < count; i++)                  \
        memcpy(to + i * stride, from + i * width, width)

/* The other way, into records that follow one another. */
static void scatter(char *to, const char *from, long stride, long width, long count)
{
    switch (width) {
    case 1: COPY(1); break;
    case 4: COPY(4); break;
    case 8: COPY(8); break;
    case 16: COPY(16); break;
    case 32: COPY(32); break;
    default: COPY(width);
    }
}

/* Numbers whose exponent is all ones are infinite or none. */
static int all_finite(const void *numbers, long bytes, long count)
{
    int wrong = 0;
    if (bytes == 8) {
        const uint64_t *bits = numbers;
        for (long i = 0; i < count; i++)
            wrong |= (bits[i] & 0x7ff0000000000000u) == 0x7ff0000000000000u;
    } else if (bytes == 4) {
        const uint32_t *bits = numbers;
        for (long i = 0; i < count; i++)
            wrong |= (bits[i] & 0x7f800000u) == 0x7f800000u;
    } else {
        const uint16_t *bits = numbers;
        for (long i = 0; i < count; i++)
            wrong |= (bits[i] & 0x7c00u) == 0x7c00u;
    }
    return !wrong;
}

/* An array as NumPy keeps it, from where its numbers are told on. */
typedef struct {
    char *data;
    int axes;
    int64_t *shape, *strides;
    void *base, *type;
    int flags;
} Array;

enum { RECORDS, STRIDE, CAPACITY, EXPECTED, CHECKS, COLUMNS, FINALS, IN };
enum { AT, OFFSET, OBJECTS };
enum { ENDS, ACTIONS, REWARDS, VALID = 6 };
#define ARRAY(index) ((const Array *)(call[OBJECTS + (index)] + call[OFFSET]))
#define UNLIKE INT64_MIN

/* Whether an array has this type and shape, and no gaps. */
static int fits(const Array *array, int64_t type, int64_t lead, int64_t slots, const int64_t *more)
{
    long axes = slots < 0 ? 1 : 2;
    if (more[0] < 0 || (int64_t)array->type != type || !(array->flags & 1) || array->axes != axes + more[0] || array->shape[0] != lead)
        return 0;
    if (slots >= 0 && array->shape[1] != slots)
        return 0;
    for (long i = 0; i < more[0]; i++)
        if (array->shape[axes + i] != more[1 + i])
            return 0;
    return 1;
}

/* The steps [T, B] of one rollout from row `at` on, round the end. The call names the objects of its arrays; so many bytes
   into each it is told where its numbers begin, and how they lie.
   The plan has, for each array: its type, steps beyond T (-1: it is of endings), how many more axes, how long each is
   (at most 4). Checks: an array that must be finite, bytes of a number, numbers of a step, steps beyond T.
   Columns: a place in the record, a width, an array, how many steps later it begins. Finals: the same, of endings.
   Before anything is written it gives UNLIKE when arrays are not as expected, -1 - i when check i fails, one less than that
   of the last when an ending is nowhere; else how many steps are not valid. */
int64_t mill_rows_put(const int64_t *plan, const int64_t *call)
{
    const Array *rewards = ARRAY(REWARDS), *ends = ARRAY(ENDS);
    if (rewards->axes != 2 || ends->axes != 2 || ends->shape[1] != 2)
        return UNLIKE;
    long steps = rewards->shape[0], slots = rewards->shape[1], count = steps * slots, ended = ends->shape[0], blank = 0;
    long stride = plan[STRIDE], capacity = plan[CAPACITY], at = call[AT];
    const int64_t *expected = plan + IN, *check = expected + 7 * plan[EXPECTED];
    if ((int64_t)ends->type != expected[0] || count > capacity)
        return UNLIKE;
    expected += 7;
    for (long i = 1; i < plan[EXPECTED]; i++, expected += 7) {
        int last = expected[1] < 0;
        if (last && !ended)
            continue;
        if (!fits(ARRAY(i), expected[0], last ? ended : steps + expected[1], last ? -1 : slots, expected + 2))
            return UNLIKE;
    }
    for (long i = 0; i < plan[CHECKS]; i++, check += 4) {
        long numbers = check[3] < 0 ? ended : (steps + check[3]) * slots;
        if (numbers && !all_finite(ARRAY(check[0])->data, check[1], numbers * check[2]))
            return -1 - i;
    }
#define END(i, axis) (*(const int64_t *)(ends->data + (i) * ends->strides[0] + (axis) * ends->strides[1]))
    for (long i = 0; i < ended; i++)
        if (END(i, 0) < 0 || END(i, 0) >= steps || END(i, 1) < 0 || END(i, 1) >= slots)
            return -1 - plan[CHECKS];
    long room = capacity - at, before = count < room ? count : room;
    const int64_t *column = check;
    for (long i = 0; i < plan[COLUMNS]; i++, column += 4) {
        char *records = (char *)plan[RECORDS] + column[0];
        const char *from = ARRAY(column[2])->data + column[3] * slots * column[1];
        scatter(records + at * stride, from, stride, column[1], before);
        scatter(records, from + before * column[1], stride, column[1], count - before);
    }
    for (long f = 0; f < (ended ? plan[FINALS] : 0); f++, column += 4)
        for (long i = 0; i < ended; i++) {
            long place = (at + END(i, 0) * slots + END(i, 1)) % capacity;
            memcpy((char *)plan[RECORDS] + place * stride + column[0], ARRAY(column[2])->data + i * column[1], column[1]);
        }
    const char *valid = ARRAY(VALID)->data;
    for (long i = 0; i < count; i++)
        blank += !valid[i];
    return blank;
}

enum { LENGTH = EXPECTED, SLOTS, WHOLE, OVER, CUT, COUNTS, FOLLOWING, WINDOW, COUNTED, FIRST, ENDED, WANTED, LAST, OUT };

/* Which rows [L, B] the windows have that begin at these rows, and which of them count. */
static void follow(const int64_t *plan, const int64_t *numbers, const int64_t *parts, int64_t *window, uint8_t *counts)
{
    const char *records = (const char *)plan[RECORDS];
    long stride = plan[STRIDE], capacity = plan[CAPACITY], slots = plan[SLOTS];
    for (long b = 0; b < slots; b++) {
        window[b] = numbers[b] % capacity + (parts ? parts[b] * capacity : 0);
        __builtin_prefetch(records + window[b] * stride);
        __builtin_prefetch(records + window[b] * stride + stride - 1);
    }
    for (long b = 0; b < slots; b++)
        counts[b] = records[window[b] * stride + plan[COUNTS]];
    for (long i = slots; i < plan[LENGTH] * slots; i++) {
        const char *before = records + window[i - slots] * stride;
        int64_t after = *(const int64_t *)(before + plan[FOLLOWING]);
        int64_t place = after + (parts ? parts[i % slots] * capacity : 0);
        if (plan[WHOLE]) {
            window[i] = place;
            counts[i] = records[place * stride + plan[COUNTS]];
        } else {
            counts[i] = counts[i - slots] && !before[plan[OVER]] && !before[plan[CUT]] && after >= 0;
            window[i] = counts[i] ? place : window[i - slots];
        }
    }
}

/* Windows of L steps that begin at these rows (of these parts), column by column into `out`; gives how many ended.
   A column of the plan: its place in a record, its width, its place in `out`, whether of the last step alone. */
long mill_rows_take(const int64_t *plan, const int64_t *numbers, const int64_t *parts, char *out)
{
    const char *records = (const char *)plan[RECORDS];
    long stride = plan[STRIDE], slots = plan[SLOTS], all = plan[LENGTH] * slots, ended = 0;
    int64_t *window = (int64_t *)(out + plan[WINDOW]), *final = (int64_t *)(out + plan[ENDED]);
    uint8_t *counts = (uint8_t *)out + plan[COUNTED];
    follow(plan, numbers, parts, window, counts);
    const int64_t *column = plan + OUT;
    for (long i = 0; i < plan[WANTED]; i++, column += 4) {
        long from = column[3] ? all - slots : 0;
        gather(out + column[2], records + column[0], stride, column[1], all - from, window + from);
    }
    memset(out + plan[FIRST] + all, 0, slots);
    for (long i = 0; i < all; i++) {
        const char *record = records + window[i] * stride;
        if (counts[i] && (record[plan[OVER]] || record[plan[CUT]])) {
            final[2 * ended] = i / slots;
            final[2 * ended + 1] = i % slots;
            const int64_t *each = column;
            for (long f = 0; f < plan[LAST]; f++, each += 4)
                memcpy(out + each[2] + ended * each[1], record + each[0], each[1]);
            ended++;
        }
    }
    return ended;
}

/* From numbers from 0 to before 1 items of several shards, which hold `ends[last]` of them together; `ends` are running
   sums. Gives shards, numbers there and keys: the shard's above `bits` bits, the number below. */
void mill_rows_spread(long shards, const int64_t *firsts, const int64_t *ends, long count, const double *chances,
                      long bits, int64_t *parts)
{
    int64_t *numbers = parts + count, *keys = numbers + count;
    double all = (double)ends[shards - 1];
    for (long i = 0; i < count; i++) {
        int64_t spot = (int64_t)(chances[i] * all);
        long part = 0;
        for (long s = 0; s < shards - 1; s++)
            part += spot >= ends[s];
        parts[i] = part;
        numbers[i] = spot - (part ? ends[part - 1] : 0) + firsts[part];
        keys[i] = (int64_t)part << bits | numbers[i];
    }
}

/* The items that stand at these leaves, of shards with `capacity` leaves each: shards, numbers and keys as above. */
void mill_rows_locate(long capacity, const int64_t *firsts, long count, const int64_t *leaves, long bits, int64_t *parts)
{
    int64_t *numbers = parts + count, *keys = numbers + count;
    for (long i = 0; i < count; i++) {
        int64_t part = leaves[i] / capacity, place = leaves[i] % capacity, begin = firsts[part] % capacity;
        parts[i] = part;
        numbers[i] = firsts[part] + place - begin + (place < begin ? capacity : 0);
        keys[i] = part << bits | numbers[i];
    }
}
