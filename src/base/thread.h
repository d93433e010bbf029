/* SPDX-License-Identifier: Apache-2.0 */
/* How the calling thread shares the processors with others. */
#ifndef LAPSE_BASE_THREAD_H
#define LAPSE_BASE_THREAD_H

/* For a worker that computes much, at the beginning of its jobs; it stays so. It gets less of a
 * busy processor than others, and a thread that wakes up interrupts it at once. Without that, a
 * reader that needs 50 us could wait for milliseconds until the worker's time is over. */
void thread_give_way(void);

#endif
