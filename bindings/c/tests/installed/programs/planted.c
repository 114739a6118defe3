/* Makes the error that its argument names, so that a test sees that the sanitizers notice. */
#include "check.h"
#include <forebay.h>
#include <limits.h>

int main(int argc, char **argv) {
    const char *bug = argc > 1 ? argv[1] : "none";
    char *error = NULL;
    leveldb_options_t *options = leveldb_options_create();
    leveldb_t *db = leveldb_open(options, "planted", &error);
    CHECK(db == NULL && error != NULL);
    leveldb_options_destroy(options);
    if (strcmp(bug, "after-free") == 0) {
        leveldb_free(error);
        return error[0];
    }
    if (strcmp(bug, "overflow") == 0) {
        argc += INT_MAX - 1;
        printf("%d\n", argc);
    }
    if (strcmp(bug, "leak") == 0) {
        error = NULL;
    }
    leveldb_free(error);
    return 0;
}
