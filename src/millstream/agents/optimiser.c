/* What happens to every weight after each gradient, in one walk over memory. */

#include <math.h>

/* Adam: `length` and `least` have the corrections of both moments in them. */
void mill_adam(long count, float *restrict weights, const float *restrict gradient, float *restrict first,
               float *restrict second, float beta, float gamma, float length, float least)
{
    for (long i = 0; i < count; i++) {
        float g = gradient[i];
        first[i] = beta * first[i] + (1.0f - beta) * g;
        second[i] = gamma * second[i] + (1.0f - gamma) * g * g;
        weights[i] -= length * first[i] / (sqrtf(second[i]) + least);
    }
}

/* A share of the way from where weights are to where others are. */
void mill_follow(long count, float *restrict weights, const float *restrict others, float share)
{
    for (long i = 0; i < count; i++)
        weights[i] += share * (others[i] - weights[i]);
}
