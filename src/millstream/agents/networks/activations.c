/* tanh and its slope over whole layers, in place.

   NumPy's tanh takes 2.6 ns a number on a processor where a multiplication takes 0.13: in a small network that is
   two fifths of learning. The ratio of polynomials below was fitted to tanh on [-7.9, 7.9] (error under 4e-7 in
   single precision, beyond it tanh is 1 to the last bit but one) and is compiled to vector instructions. */

#include <stddef.h>

#if defined(__GNUC__) && defined(__x86_64__) && defined(__linux__)
#define EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EACH_PROCESSOR
#endif

static inline float bent(float x)
{
    x = x > 7.9f ? 7.9f : x;
    x = x < -7.9f ? -7.9f : x;
    float u = x * x;
    float above = 9.9999997e-1f + u * (1.3444462e-1f + u * (3.5717086e-3f + u * (2.1903624e-5f + u * 1.5259972e-8f)));
    float below = 1.0f + u * (4.6777785e-1f + u * (2.6164461e-2f + u * (3.4117637e-4f + u * 8.5306658e-7f)));
    return x * above / below;
}

/* layer [towers, rows, width] = tanh(layer + bias [towers, 1, width]) */
EACH_PROCESSOR void mill_tanh(float *restrict layer, const float *restrict bias, size_t towers, size_t rows, size_t width)
{
    for (size_t tower = 0; tower < towers; tower++, bias += width)
        for (size_t row = 0; row < rows; row++, layer += width)
            for (size_t i = 0; i < width; i++)
                layer[i] = bent(layer[i] + bias[i]);
}

/* delta *= 1 - given^2, where given = tanh(...) */
EACH_PROCESSOR void mill_tanh_back(float *restrict delta, const float *restrict given, size_t count)
{
    for (size_t i = 0; i < count; i++)
        delta[i] *= 1.0f - given[i] * given[i];
}
