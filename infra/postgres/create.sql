-- Makes the role and the three databases that Airflow and MLflow need; a second run changes only
-- the role's password. Run it as a superuser; the password comes from the environment, so that it
-- stands on no command line:
--   psql --no-psqlrc -v ON_ERROR_STOP=1 < infra/postgres/create.sql
\getenv password NIGHTMILL_DATABASE_PASSWORD
SET password_encryption = 'scram-sha-256';
SELECT 'CREATE ROLE nightmill LOGIN'
    WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'nightmill') \gexec
ALTER ROLE nightmill PASSWORD :'password';
SELECT format('CREATE DATABASE %I OWNER nightmill ENCODING ''UTF8'' TEMPLATE template0', name)
    FROM unnest(ARRAY['airflow', 'mlflow', 'mlflow_accounts']) AS name
    WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = name) \gexec
-- Nobody else of this server reads what is in them.
REVOKE ALL ON DATABASE airflow, mlflow, mlflow_accounts FROM PUBLIC;
