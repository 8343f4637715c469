/* The parts of the program `functions`. All are collective. */
#ifndef TESTS_H
#define TESTS_H

#include "suite.h"

void test_files(void);
void test_views(void);
void test_data(void);
void test_errors(void);
void test_handlers(void);
void test_datareps(void);
void test_large(void);

#endif
