/* Products of matrices, made of tiles: TALL rows by PANEL columns of the result are held in registers while the depth is
   walked, and are finished (bent, multiplied by a slope, or added) on their way out. Nine tenths of what a core can do.

   Matrices that are read or written by vectors have rows of a whole number of panels. What stands past the true width is
   never taken for a number of the matrix. Each sum has one order, whatever else the machine does. */

#include <stdint.h>
#include <string.h>

/* Of two that cannot be compared LEAST and MOST give the second: what is not a number stays so. */
#if defined(__AVX512F__)
#include <immintrin.h>
enum { LANES = 16, ACROSS = 2 };
#define LEAST(a, b) _mm512_min_ps(a, b)
#define MOST(a, b) _mm512_max_ps(a, b)
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
enum { LANES = 8, ACROSS = 2 };
#define LEAST(a, b) _mm256_min_ps(a, b)
#define MOST(a, b) _mm256_max_ps(a, b)
#elif defined(__SSE2__)
#include <immintrin.h>
enum { LANES = 4, ACROSS = 2 };
#define LEAST(a, b) _mm_min_ps(a, b)
#define MOST(a, b) _mm_max_ps(a, b)
#else /* as on ARM: twice the registers */
enum { LANES = 4, ACROSS = 4 };
#define PICK(where, a, b) (vector)(((where) & (__typeof__(where))(a)) | (~(where) & (__typeof__(where))(b)))
#define LEAST(a, b) PICK((a) < (b), a, b)
#define MOST(a, b) PICK((a) > (b), a, b)
#endif

enum { TALL = 6, PANEL = ACROSS * LANES };

typedef float vector __attribute__((vector_size(4 * LANES), may_alias));
#define AT(address) (*(vector *)(address))
#define INLINE static inline __attribute__((always_inline))
#define APART static __attribute__((noinline)) /* or the compiler runs out of registers */

/* How long a row is: whole panels, and not so that the same column of all rows falls into a few places of the cache. */
INLINE long wide(long width)
{
    long whole = (width + PANEL - 1) / PANEL * PANEL;
    return whole % 128 ? whole : whole + PANEL;
}

/* tanh is a ratio of polynomials fitted on [-7.9, 7.9], error under 4e-7; beyond, it is 1 to the last bit but one. */
INLINE vector bent(vector x, long relu)
{
    if (relu)
        return MOST((vector){0}, x);
    vector end = (vector){0} + 7.9f;
    x = LEAST(end, x);
    x = MOST(-end, x);
    vector u = x * x;
    vector above = 9.9999997e-1f + u * (1.3444462e-1f + u * (3.5717086e-3f + u * (2.1903624e-5f + u * 1.5259972e-8f)));
    vector below = 1.0f + u * (4.6777785e-1f + u * (2.6164461e-2f + u * (3.4117637e-4f + u * 8.5306658e-7f)));
    return x * above / below;
}

/* The slope where `bent` gave this. */
INLINE vector slope(vector given, long relu)
{
    vector one = (vector){0} + 1.0f;
    if (relu)
        return (vector)((given > 0.0f) & (__typeof__(given > 0.0f))one);
    return one - given * given;
}

/* out [rows, width] from a [rows, depth] times b [depth, width]. Rows of b, out and given are wide(width) long;
   a[r][k] is at a[r * a_row + k * a_deep], so that a may lie on its side. */
struct product {
    long rows, depth, width;
    const float *a;
    long a_row, a_deep;
    const float *b;
    float *out;
    const float *given;
    long relu;
};

enum finish {
    BEND,    /* out = bent(a b + bias): the bias is the row that follows the last of b */
    SLOPE,   /* out = a b * slope(given) */
    ADD,     /* out += a b */
    ADD_ONES /* the same, where the last row of a is all ones and is stored nowhere */
};

/* `finish` and `tall` are known to the compiler wherever this is called: no loop but the one over the depth remains. */
INLINE void tile(struct product p, enum finish finish, int tall, long r0, long c0)
{
    long row = wide(p.width);
    const float *a = p.a + r0 * p.a_row, *b = p.b + c0;
    float *out = p.out + r0 * row + c0;
    vector sum[TALL][ACROSS];
    for (int r = 0; r < tall; r++)
        for (int c = 0; c < ACROSS; c++)
            sum[r][c] = finish == BEND ? AT(b + p.depth * row + c * LANES) : (vector){0};
    for (long k = 0; k < p.depth; k++, a += p.a_deep, b += row)
        for (int r = 0; r < tall; r++)
            for (int c = 0; c < ACROSS; c++)
                sum[r][c] += (finish == ADD_ONES && r == tall - 1 ? 1.0f : a[r * p.a_row]) * AT(b + c * LANES);
    for (int r = 0; r < tall; r++)
        for (int c = 0; c < ACROSS; c++) {
            long at = r * row + c * LANES;
            if (finish == SLOPE)
                sum[r][c] *= slope(AT(p.given + r0 * row + c0 + at), p.relu);
            if (finish == ADD || finish == ADD_ONES)
                sum[r][c] += AT(out + at);
            AT(out + at) = sum[r][c];
        }
    for (int r = 0; finish == BEND && r < tall; r++, out += row) /* once more over it: too long to be unrolled */
        for (int c = 0; c < PANEL; c += LANES)
            AT(out + c) = bent(AT(out + c), p.relu);
}

INLINE void tiles(struct product p, enum finish finish)
{
    for (long c = 0; c < p.width; c += PANEL) {
        long r = 0;
        for (; r + TALL < p.rows; r += TALL)
            tile(p, finish == ADD_ONES ? ADD : finish, TALL, r, c);
        switch (p.rows - r) {
        case 6: tile(p, finish, 6, r, c); break;
        case 5: tile(p, finish, 5, r, c); break;
        case 4: tile(p, finish, 4, r, c); break;
        case 3: tile(p, finish, 3, r, c); break;
        case 2: tile(p, finish, 2, r, c); break;
        case 1: tile(p, finish, 1, r, c); break;
        }
    }
}

APART void bend(struct product p) { tiles(p, BEND); }
APART void carry_back(struct product p) { tiles(p, SLOPE); }
APART void add(struct product p) { tiles(p, ADD); }
APART void add_with_ones(struct product p) { tiles(p, ADD_ONES); }

static float total(vector parts)
{
    float part[LANES];
    memcpy(part, &parts, sizeof part);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            part[i] += part[i + half];
    return part[0];
}

/* out [rows] = a [rows, width] times b [width], plus bias: too narrow for tiles */
static void times_vector(long rows, long width, const float *a, const float *b, float bias, float *out)
{
    long whole = width / LANES * LANES;
    for (long r = 0; r < rows; r++, a += wide(width)) {
        vector sum = {0};
        for (long k = 0; k < whole; k += LANES)
            sum += AT(a + k) * AT(b + k);
        out[r] = bias + total(sum);
        for (long k = whole; k < width; k++)
            out[r] += a[k] * b[k];
    }
}

/* to [rows, wide(width)] = from [rows, width] */
static void widen(const float *from, long rows, long width, float *to)
{
    for (long r = 0; r < rows; r++, from += width, to += wide(width)) {
        memcpy(to, from, width * sizeof *to);
        memset(to + width, 0, (wide(width) - width) * sizeof *to);
    }
}

/* to [width, wide(rows)] = from [rows, width], turned: by squares, whose rows are read and written whole */
static void turn(const float *from, long rows, long width, float *to)
{
    enum { SIDE = 4 };
    long deep = rows / SIDE * SIDE, across = width / SIDE * SIDE, row = wide(rows);
    memset(to, 0, width * row * sizeof *to);
    for (long r = 0; r < deep; r += SIDE)
        for (long c = 0; c < across; c += SIDE)
            for (int j = 0; j < SIDE; j++) {
                float column[SIDE];
                for (int i = 0; i < SIDE; i++)
                    column[i] = from[(r + i) * width + c + j];
                memcpy(to + (c + j) * row + r, column, sizeof column);
            }
    for (long c = 0; c < width; c++)
        for (long r = c < across ? deep : 0; r < rows; r++)
            to[c * row + r] = from[r * width + c];
}
